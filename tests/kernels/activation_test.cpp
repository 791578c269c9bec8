#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;

struct Activation {                     // gelu: x (N, F); swiglu: x (N, 2F)
  Activation(DType d, int64_t N, int64_t F, bool gated)
      : x(OwnedTensor::normal(d, {N, gated ? 2 * F : F}, 1, 2)), y(d, {N, F}), dx(d, shape_of(x)), dy(OwnedTensor::normal(d, {N, F}, 2)) {}
  OwnedTensor x, y, dx, dy;
};
void run_gelu(Activation& a, Gelu form) {
  gelu_forward(stream, {.y = a.y, .x = a.x, .form = form});
  gelu_backward(stream, {.dx = a.dx, .dy = a.dy, .x = a.x, .form = form});
}
void run_swiglu(Activation& a) {
  swiglu_forward(stream, {.y = a.y, .x = a.x});
  swiglu_backward(stream, {.dx = a.dx, .dy = a.dy, .x = a.x});
}

TEST(Activation, GeluGradients) {
  for (Gelu form : {Gelu::tanh, Gelu::erf})
    for (int64_t N : {1, 7}) {
      Activation a(DType::f64, N, 13, false);
      const DifferentiableOp op{[&] { gelu_forward(stream, {.y = a.y, .x = a.x, .form = form}); },
                                [&] { gelu_backward(stream, {.dx = a.dx, .dy = a.dy, .x = a.x, .form = form}); },
                                {{"x", a.x, a.dx, Gives::written}}, {{a.y, a.dy}}};
      expect_gradients(op);
      expect_accumulates(op);
    }
}

TEST(Activation, SwigluGradients) {
  for (int64_t N : {1, 7}) {
    Activation a(DType::f64, N, 13, true);
    const DifferentiableOp op{[&] { swiglu_forward(stream, {.y = a.y, .x = a.x}); },
                              [&] { swiglu_backward(stream, {.dx = a.dx, .dy = a.dy, .x = a.x}); },
                              {{"x", a.x, a.dx, Gives::written}}, {{a.y, a.dy}}};
    expect_gradients(op);
    expect_accumulates(op);
  }
}

// Values worked out from the formulas with 25 digits.
TEST(Activation, KnownValues) {
  OwnedTensor x = OwnedTensor::filled(DType::f64, {1, 2}, 1), y(DType::f64, {1, 2}), gated(DType::f64, {1, 1});
  gelu_forward(stream, {.y = y, .x = x, .form = Gelu::tanh});
  EXPECT_NEAR(y.get(0), 0.8411919906082767, 1e-15);
  gelu_forward(stream, {.y = y, .x = x, .form = Gelu::erf});
  EXPECT_NEAR(y.get(0), 0.8413447460685429, 1e-15);
  x.set(0, 2);                                             // gate
  x.set(1, -3);                                            // up
  swiglu_forward(stream, {.y = gated, .x = x});
  EXPECT_NEAR(gated.get(0), -3 * 2 / (1 + std::exp(-2.0)), 1e-15);
}

TEST(Activation, FarOutIsLinearOrZero) {                     // no overflow, no NaN
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (double v : {80.0, -80.0, 3e4, -3e4}) {
      Activation a(d, 1, 1, false), g(d, 1, 1, true);
      a.x.fill(v);
      g.x.set(0, v);
      g.x.set(1, 1);
      for (Gelu form : {Gelu::tanh, Gelu::erf}) {
        run_gelu(a, form);
        EXPECT_EQ(a.y.get(0), v > 0 ? a.x.get(0) : 0) << v;
        EXPECT_EQ(a.dx.get(0), v > 0 ? a.dy.get(0) : 0) << v;
      }
      run_swiglu(g);
      EXPECT_NEAR(g.y.get(0), v > 0 ? g.x.get(0) : 0, 1e-30) << v;
    }
}

TEST(Activation, GradientMayReplaceItsCotangent) {
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (Gelu form : {Gelu::tanh, Gelu::erf}) {
      Activation a(d, 5, 19, false);
      run_gelu(a, form);
      gelu_backward(stream, {.dx = a.dy, .dy = a.dy, .x = a.x, .form = form});
      EXPECT_EQ(a.dy.values(), a.dx.values());
    }
}

Results gelu(DType d, Gelu form) {
  Activation a(d, 31, 67, false);
  run_gelu(a, form);
  return {record("y", a.y), record("dx", a.dx)};
}
Results swiglu(DType d) {
  Activation a(d, 31, 67, true);
  run_swiglu(a);
  return {record("y", a.y), record("dx", a.dx)};
}
TEST(Activation, Twins) {
  for (Gelu form : {Gelu::tanh, Gelu::erf}) expect_twins([&](DType d) { return gelu(d, form); });
  expect_twins(swiglu);
}
TEST(Activation, ThreadIndependent) {
  for (Gelu form : {Gelu::tanh, Gelu::erf}) expect_thread_independent([&](DType d) { return gelu(d, form); });
  expect_thread_independent(swiglu);
}

TEST(Activation, Doors) {
  Stream dry(true);
  const Tensor x = view(nullptr, DType::bf16, {4, 6}), wide = view(nullptr, DType::bf16, {4, 12}),
               other = view(nullptr, DType::f32, {4, 6});
  gelu_forward(dry, {.y = x, .x = x, .form = Gelu::tanh});
  gelu_backward(dry, {.dx = x, .dy = x, .x = x, .form = Gelu::erf});
  swiglu_forward(dry, {.y = x, .x = wide});
  swiglu_backward(dry, {.dx = wide, .dy = x, .x = wide});
  expect_refused({"(4, 12)", "(4, 6)"}, [&] { gelu_forward(dry, {.y = wide, .x = x, .form = Gelu::tanh}); });
  expect_refused({"f32 (4, 6)", "bf16 (4, 6)"}, [&] { gelu_forward(dry, {.y = other, .x = x, .form = Gelu::tanh}); });
  expect_refused({"f32 (4, 6)", "bf16 (4, 6)"}, [&] { gelu_backward(dry, {.dx = x, .dy = other, .x = x, .form = Gelu::tanh}); });
  expect_refused({"y bf16 (4, 6), x bf16 (4, 6)"}, [&] { swiglu_forward(dry, {.y = x, .x = x}); });
  expect_refused({"dx bf16 (4, 6)", "x bf16 (4, 12)"}, [&] { swiglu_backward(dry, {.dx = x, .dy = x, .x = wide}); });
  expect_refused({"dy f32 (4, 6)", "x bf16 (4, 12)"}, [&] { swiglu_backward(dry, {.dx = wide, .dy = other, .x = wide}); });
}

}  // namespace
}  // namespace wyvern
