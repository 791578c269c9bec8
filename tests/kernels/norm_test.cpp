#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;

struct Case {
  bool layer = true, weight = true, bias = true, fused_add = false;
  int64_t N = 7, groups = 1, D = 11, offset = 0, W = 11, Wo = 11;     // W and Wo: widths of x and out
  double eps = 1e-5;
};

struct Norm {
  Norm(DType d, const Case& c)
      : c(c), out(d, {c.N, c.Wo}), rstd(acc_of(d), {c.N, c.groups}), x(OwnedTensor::normal(d, {c.N, c.W}, 1, 2)), dx(d, {c.N, c.W}),
        dout(OwnedTensor::normal(d, {c.N, c.Wo}, 2)) {
    if (c.layer) mean = OwnedTensor(acc_of(d), {c.N, c.groups});
    if (c.weight) w = OwnedTensor::normal(d, {c.D}, 3), dw = OwnedTensor::filled(acc_of(d), {c.D}, 0);
    if (c.bias) b = OwnedTensor::normal(d, {c.D}, 4), db = OwnedTensor::filled(acc_of(d), {c.D}, 0);
    if (c.fused_add) a = OwnedTensor::normal(d, {c.N, c.W}, 5, 2), b_add = OwnedTensor::normal(d, {c.N, c.W}, 6);
    for (int64_t n = 0; n < c.N; n++)                     // columns of out that are not addressed: forward leaves them alone
      for (int64_t i = 0; i < c.Wo; i++)
        if (i < c.offset || i >= c.offset + c.groups * c.D) out.set(n * c.Wo + i, 0.5);
  }
  void forward() {
    norm_forward(stream, {.out = out, .rstd = rstd, .mean = mean, .x = x, .a = a, .b_add = b_add, .w = w, .b = b, .eps = c.eps,
                          .groups = c.groups, .D = c.D, .offset = c.offset});
  }
  void backward(bool add_dx = false) {
    norm_backward(stream, {.dx = dx, .dw = dw, .db = db, .dout = dout, .x = x, .rstd = rstd, .mean = mean, .w = w, .groups = c.groups,
                           .D = c.D, .offset = c.offset, .add_dx = add_dx});
  }
  DifferentiableOp op() {
    DifferentiableOp op{[this] { forward(); }, [this] { backward(); }, {}, {{out, dout}}};
    op.variables.push_back({"x", x, dx, Gives::written, {{c.offset, c.offset + c.groups * c.D}}});
    if (c.weight) op.variables.push_back({"w", w, dw, Gives::accumulated});
    if (c.bias) op.variables.push_back({"b", b, db, Gives::accumulated});
    return op;
  }
  Case c;
  OwnedTensor out, rstd, mean, x, a, b_add, w, b, dx, dw, db, dout;
};

TEST(Norm, Gradients) {
  for (bool layer : {false, true})
    for (const auto& [weight, bias] : {std::pair{true, layer}, {true, false}, {false, false}})
      for (Case c :
           {Case{}, Case{.N = 1, .D = 1, .W = 1, .Wo = 1, .eps = 0.5}, Case{.N = 5, .groups = 3, .D = 4, .offset = 2, .W = 17, .Wo = 17},
            Case{.N = 40, .groups = 2, .D = 6, .offset = 5, .W = 20, .Wo = 17}}) {
        if (layer && c.D == 1) continue;                  // one channel minus its mean is zero
        c.layer = layer, c.weight = weight, c.bias = bias;
        SCOPED_TRACE(testing::Message() << "layer " << layer << " weight " << weight << " bias " << bias << " D " << c.D << " groups "
                                        << c.groups);
        Norm norm(DType::f64, c);
        expect_gradients(norm.op());
        expect_accumulates(norm.op());
      }
}

TEST(Norm, ALargeEpsIsDifferentiatedToo) {                  // with 1e-5 a lost eps would hide below the tolerance
  Norm norm(DType::f64, {.layer = false, .bias = false, .eps = 3});
  expect_gradients(norm.op());
}

// x = a + b_add goes on as the residual stream: its gradient holds what the later readers left, and the norm adds to it.
TEST(Norm, FusedAddGradients) {
  for (bool layer : {false, true}) {
    Norm norm(DType::f64, {.layer = layer, .bias = layer, .fused_add = true});
    OwnedTensor dx_later = OwnedTensor::normal(DType::f64, {norm.c.N, norm.c.W}, 9), db_add(DType::f64, {norm.c.N, norm.c.W});
    const auto backward = [&] {
      norm.dx.copy_from(dx_later);
      norm.backward(true);
      db_add.copy_from(norm.dx);
    };
    DifferentiableOp op{
        [&] { norm.forward(); },
        backward,
        {{"a", norm.a, norm.dx, Gives::written}, {"b_add", norm.b_add, db_add, Gives::written}, {"w", norm.w, norm.dw, Gives::accumulated}},
        {{norm.out, norm.dout}, {norm.x, dx_later}}};
    if (layer) op.variables.push_back({"b", norm.b, norm.db, Gives::accumulated});
    expect_gradients(op);
  }
}

TEST(Norm, AddDxAddsExactly) {
  for (DType d : {DType::f64, DType::f32}) {
    Norm written(d, {}), added(d, {});
    added.dx.fill(0);
    for (Norm* n : {&written, &added}) n->forward();
    written.backward();
    added.backward(true);
    EXPECT_EQ(written.dx.values(), added.dx.values());
  }
}

TEST(Norm, FusedAddIsAddThenNorm) {
  for (DType d : {DType::f64, DType::f32, DType::bf16}) {
    Norm fused(d, {.fused_add = true}), plain(d, {});
    for (int64_t i = 0; i < fused.x.view().numel(); i++) plain.x.set(i, fused.a.get(i) + fused.b_add.get(i));
    fused.forward();
    plain.forward();
    EXPECT_EQ(fused.x.values(), plain.x.values());         // the sum is rounded once, and what is stored is what is normed
    EXPECT_EQ(fused.out.values(), plain.out.values());
  }
}

TEST(Norm, ForwardIsTheDefinition) {
  for (bool layer : {false, true}) {
    const Case c{.layer = layer, .bias = layer, .N = 3, .groups = 2, .D = 5, .offset = 1, .W = 13, .Wo = 12, .eps = 0.1};
    Norm norm(DType::f64, c);
    norm.forward();
    for (int64_t n = 0; n < c.N; n++)
      for (int64_t g = 0; g < c.groups; g++) {
        const auto x = [&](int64_t i) { return norm.x.get(n * c.W + c.offset + g * c.D + i); };
        double mean = 0, square = 0;
        for (int64_t i = 0; i < c.D; i++) mean += x(i) / double(c.D), square += x(i) * x(i) / double(c.D);
        const double rstd = 1 / std::sqrt((layer ? square - mean * mean : square) + c.eps);
        EXPECT_NEAR(norm.rstd.get(n * c.groups + g), rstd, 1e-13 * rstd);
        for (int64_t i = 0; i < c.D; i++) {
          const double want = (x(i) - (layer ? mean : 0)) * rstd * norm.w.get(i) + (layer ? norm.b.get(i) : 0);
          EXPECT_NEAR(norm.out.get(n * c.Wo + c.offset + g * c.D + i), want, 1e-13);
        }
      }
    EXPECT_EQ(norm.out.get(0), 0.5) << "wrote a column that is not addressed";
    EXPECT_EQ(norm.out.get(c.Wo - 1), 0.5) << "wrote a column that is not addressed";
  }
}

Results run(DType d, const Case& c) {
  Norm norm(d, c);
  norm.dx.fill(0.25);
  norm.forward();
  norm.backward(true);
  Results r{record("out", norm.out), record("rstd", norm.rstd), record("dx", norm.dx), record("dw", norm.dw)};
  if (c.layer) r.push_back(record("db", norm.db));
  return r;
}

TEST(Norm, Twins) {
  for (bool layer : {false, true})
    for (Case c : {Case{.N = 40, .D = 96, .W = 96, .Wo = 96}, Case{.N = 9, .groups = 3, .D = 16, .offset = 16, .W = 80, .Wo = 64}}) {
      c.layer = c.bias = layer;
      expect_twins([&](DType d) { return run(d, c); });
    }
}

TEST(Norm, WeightsInF32BesideBf16Activations) {
  const Case c{.N = 9, .D = 64, .W = 64, .Wo = 64};
  Norm narrow(DType::bf16, c), exact(DType::f64, c);
  narrow.w = OwnedTensor::normal(DType::f32, {c.D}, 3);
  narrow.b = OwnedTensor::normal(DType::f32, {c.D}, 4);
  for (Norm* n : {&narrow, &exact}) n->forward(), n->backward();
  expect_close(Results{record("out", narrow.out), record("dx", narrow.dx), record("dw", narrow.dw)},
               Results{record("out", exact.out), record("dx", exact.dx), record("dw", exact.dw)}, 1e-2);
}

TEST(Norm, ThreadIndependent) {
  expect_thread_independent([](DType d) { return run(d, {.N = 77, .D = 33, .W = 33, .Wo = 33}); });
}

TEST(Norm, Doors) {
  Stream dry(true);
  const auto f32 = [](const Shape& s) { return view(nullptr, DType::f32, s); };
  const auto bf = [](const Shape& s) { return view(nullptr, DType::bf16, s); };
  const NormForward good{.out = bf({4, 8}), .rstd = f32({4, 1}), .mean = f32({4, 1}), .x = bf({4, 8}), .a = bf({4, 8}), .b_add = bf({4, 8}),
                         .w = bf({8}), .b = bf({8})};
  const auto forward = [&](auto&& change) {
    NormForward a = good;
    change(a);
    norm_forward(dry, a);
  };
  forward([](NormForward&) {});                            // D = 0 means the whole row
  expect_refused({"f32 (4, 8)", "bf16 (4, 8)"}, [&] { forward([&](NormForward& a) { a.out = f32({4, 8}); }); });
  expect_refused({"(5, 8)", "(4, 8)"}, [&] { forward([&](NormForward& a) { a.out = bf({5, 8}); }); });
  expect_refused({"rstd bf16 (4, 1)"}, [&] { forward([&](NormForward& a) { a.rstd = bf({4, 1}); }); });
  expect_refused({"mean bf16 (4, 1)"}, [&] { forward([&](NormForward& a) { a.mean = bf({4, 1}); }); });
  expect_refused({"w bf16 (7)"}, [&] { forward([&](NormForward& a) { a.w = bf({7}); }); });
  expect_refused({"a absent", "b_add bf16 (4, 8)"}, [&] { forward([&](NormForward& a) { a.a = {}; }); });
  expect_refused({"b_add f32 (4, 8)"}, [&] { forward([&](NormForward& a) { a.b_add = f32({4, 8}); }); });
  expect_refused({"x bf16 (4, 8): 2 groups of 4 at column 1"},
                 [&] { forward([](NormForward& a) { a.groups = 2, a.D = 4, a.offset = 1; }); });
  expect_refused({"whole rows"}, [&] { forward([](NormForward& a) { a.D = 4; a.w = rows(a.w, 0, 4); a.b = a.w; }); });

  const NormBackward back{.dx = bf({4, 8}), .dw = f32({8}), .db = f32({8}), .dout = bf({4, 8}), .x = bf({4, 8}), .rstd = f32({4, 1}),
                          .mean = f32({4, 1}), .w = bf({8})};
  const auto backward = [&](auto&& change) {
    NormBackward a = back;
    change(a);
    norm_backward(dry, a);
  };
  backward([](NormBackward&) {});
  expect_refused({"dw bf16 (8)"}, [&] { backward([&](NormBackward& a) { a.dw = bf({8}); }); });
  expect_refused({"dw absent"}, [&] { backward([&](NormBackward& a) { a.dw = {}; }); });
  expect_refused({"db bf16 (8)"}, [&] { backward([&](NormBackward& a) { a.db = bf({8}); }); });
  expect_refused({"rstd bf16 (4, 1)"}, [&] { backward([&](NormBackward& a) { a.rstd = bf({4, 1}); }); });
  expect_refused({"dout f32 (4, 8)", "x bf16 (4, 8)"}, [&] { backward([&](NormBackward& a) { a.dout = f32({4, 8}); }); });
}

}  // namespace
}  // namespace wyvern
