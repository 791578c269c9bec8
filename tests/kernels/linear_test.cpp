#include "kernels/linear.h"

#include <gtest/gtest.h>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;

struct Geometry { int64_t N, I, O; };
const Geometry kGeometries[] = {{1, 1, 1}, {7, 5, 3}, {13, 17, 9}, {2, 64, 33}};

struct Linear {
  Linear(DType d, const Geometry& g, bool bias)
      : x(OwnedTensor::normal(d, {g.N, g.I}, 1)), w(OwnedTensor::normal(d, {g.O, g.I}, 2)), y(d, {g.N, g.O}), dx(d, {g.N, g.I}),
        dy(OwnedTensor::normal(d, {g.N, g.O}, 4)), dw(OwnedTensor::filled(acc_of(d), {g.O, g.I}, 0)) {
    if (!bias) return;
    b = OwnedTensor::normal(d, {g.O}, 3);
    db = OwnedTensor::filled(acc_of(d), {g.O}, 0);
  }
  void forward() { linear_forward(stream, {.y = y, .x = x, .w = w, .b = b}); }
  void backward() { linear_backward(stream, {.dx = dx, .dw = dw, .db = db, .dy = dy, .x = x, .w = w}); }
  DifferentiableOp op() {
    DifferentiableOp op{
        [this] { forward(); }, [this] { backward(); }, {{"x", x, dx, Gives::written}, {"w", w, dw, Gives::accumulated}}, {{y, dy}}};
    if (b.view()) op.variables.push_back({"b", b, db, Gives::accumulated});
    return op;
  }
  OwnedTensor x, w, b, y, dx, dy, dw, db;
};

Results run(DType d, const Geometry& g) {
  Linear l(d, g, true);
  l.forward();
  l.backward();
  return {record("y", l.y), record("dx", l.dx), record("dw", l.dw), record("db", l.db)};
}

TEST(Linear, Gradients) {
  for (const Geometry& g : kGeometries)
    for (bool bias : {false, true}) {
      Linear l(DType::f64, g, bias);
      expect_gradients(l.op());
      expect_accumulates(l.op());
    }
}

TEST(Linear, ForwardIsTheDefinition) {
  const Geometry g = {3, 4, 2};
  Linear l(DType::f64, g, true);
  l.forward();
  for (int64_t n = 0; n < g.N; n++)
    for (int64_t o = 0; o < g.O; o++) {
      double want = l.b.get(o);
      for (int64_t i = 0; i < g.I; i++) want += l.x.get(n * g.I + i) * l.w.get(o * g.I + i);
      EXPECT_NEAR(l.y.get(n * g.O + o), want, 1e-14 * 10);      // a handful of terms of size one
    }
}

TEST(Linear, Twins) {
  for (const Geometry& g : {Geometry{13, 17, 9}, Geometry{40, 70, 35}}) expect_twins([&](DType d) { return run(d, g); });
}

TEST(Linear, InputGradientMayBeAbsent) {
  Linear with(DType::f64, kGeometries[2], true), without(DType::f64, kGeometries[2], true);
  with.backward();
  linear_backward(stream, {.dx = {}, .dw = without.dw, .db = without.db, .dy = without.dy, .x = without.x, .w = without.w});
  EXPECT_EQ(with.dw.values(), without.dw.values());
  EXPECT_EQ(with.db.values(), without.db.values());
}

// The head's logits: bf16 operands, f32 results that were never rounded to bf16.
TEST(Linear, Bf16IntoF32) {
  const Geometry g = {9, 50, 21};
  Linear narrow(DType::bf16, g, false), exact(DType::f64, g, false);
  OwnedTensor y(DType::f32, {g.N, g.O});
  linear_forward(stream, {.y = y, .x = narrow.x, .w = narrow.w});
  exact.forward();
  expect_close(record("y", y), record("y", exact.y), 1e-5);
}

TEST(Linear, ThreadIndependent) {
  expect_thread_independent([](DType d) { return run(d, {50, 37, 300}); });
}

TEST(Linear, Doors) {
  Stream dry(true);
  const Tensor x = view(nullptr, DType::bf16, {4, 8}), w = view(nullptr, DType::bf16, {6, 8}), y = view(nullptr, DType::bf16, {4, 6});
  const Tensor dw = view(nullptr, DType::f32, {6, 8}), b = view(nullptr, DType::bf16, {6}), db = view(nullptr, DType::f32, {6});
  linear_forward(dry, {.y = y, .x = x, .w = w, .b = b});
  linear_backward(dry, {.dx = x, .dw = dw, .db = db, .dy = y, .x = x, .w = w});

  expect_refused({"(4, 8)", "(6, 7)"}, [&] { linear_forward(dry, {.y = y, .x = x, .w = view(nullptr, DType::bf16, {6, 7})}); });
  expect_refused({"bf16 (4, 8)", "f32 (6, 8)"}, [&] { linear_forward(dry, {.y = y, .x = x, .w = dw}); });
  expect_refused({"(5)"}, [&] { linear_forward(dry, {.y = y, .x = x, .w = w, .b = view(nullptr, DType::bf16, {5})}); });
  expect_refused({"f64 (4, 6)", "bf16 (4, 8)"}, [&] { linear_forward(dry, {.y = view(nullptr, DType::f64, {4, 6}), .x = x, .w = w}); });
  expect_refused({"bf16 (6, 8)"}, [&] { linear_backward(dry, {.dx = x, .dw = w, .db = db, .dy = y, .x = x, .w = w}); });
  expect_refused({"(4, 7)", "(4, 8)"}, [&] {
    linear_backward(dry, {.dx = x, .dw = dw, .db = db, .dy = view(nullptr, DType::bf16, {4, 7}), .x = x, .w = w});
  });
}

}  // namespace
}  // namespace wyvern
