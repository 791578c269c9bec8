#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;

struct Optimized {                        // a parameter of n values with its state; the master is the value itself unless bf16
  Optimized(DType d, int64_t n)
      : value(OwnedTensor::normal(d, {n}, 1)), m(OwnedTensor::filled(acc_of(d), {n}, 0)), v(OwnedTensor::filled(acc_of(d), {n}, 0)),
        grad(OwnedTensor::normal(acc_of(d), {n}, 2)) {
    if (d != DType::bf16) return;
    master = OwnedTensor::normal(DType::f32, {n}, 1);
  }
  const OwnedTensor& p() const { return master.view() ? master : value; }
  void step(int64_t t, double lr, double weight_decay, double grad_scale = 1, double eps = 1e-8) {
    adamw(stream, {.value = value, .p = p(), .m = m, .v = v, .grad = grad, .lr = lr, .beta1 = 0.9, .beta2 = 0.95, .eps = eps,
                   .weight_decay = weight_decay, .grad_scale = grad_scale, .t = t});
  }
  OwnedTensor value, master, m, v, grad;
};

TEST(AdamW, FollowsTheRecurrence) {
  constexpr int64_t n = 13;
  Optimized o(DType::f64, n);
  std::vector<double> p = o.value.values(), m(n, 0.0), v(n, 0.0);
  for (int64_t t = 1; t <= 10; t++) {
    o.grad = OwnedTensor::normal(DType::f64, {n}, unsigned(100 + t));
    const double lr = 1e-2 / double(t), decay = 0.1, scale = 0.5;
    o.step(t, lr, decay, scale);
    for (size_t i = 0; i < n; i++) {
      const double g = o.grad.get(int64_t(i)) * scale;
      m[i] = 0.9 * m[i] + (1 - 0.9) * g;
      v[i] = 0.95 * v[i] + (1 - 0.95) * g * g;
      const double mean = m[i] / (1 - std::pow(0.9, double(t))), square = v[i] / (1 - std::pow(0.95, double(t)));
      p[i] -= lr * decay * p[i];
      p[i] -= lr * mean / (std::sqrt(square) + 1e-8);
      ASSERT_NEAR(o.value.get(int64_t(i)), p[i], 1e-13) << "step " << t << ", entry " << i;
    }
  }
  EXPECT_EQ(o.m.values().size(), m.size());
  for (size_t i = 0; i < n; i++) {
    EXPECT_NEAR(o.m.get(int64_t(i)), m[i], 1e-14);
    EXPECT_NEAR(o.v.get(int64_t(i)), v[i], 1e-14);
  }
}

TEST(AdamW, FirstStepMovesByTheLearningRateWhateverTheGradient) {
  Optimized o(DType::f64, 64);
  for (int64_t i = 0; i < 64; i++) o.grad.set(i, (i % 2 ? -1 : 1) * std::pow(10.0, double(i % 7) - 3));
  const std::vector<double> before = o.value.values();
  o.step(1, 1e-3, 0, 1, 1e-16);
  for (int64_t i = 0; i < 64; i++) EXPECT_NEAR(before[size_t(i)] - o.value.get(i), i % 2 ? -1e-3 : 1e-3, 1e-13);
}

TEST(AdamW, ZeroGradientShrinksByDecayAlone) {
  Optimized o(DType::f64, 9);
  o.grad.fill(0);
  const std::vector<double> before = o.value.values();
  for (int64_t t = 1; t <= 20; t++) o.step(t, 1e-2, 0.1);
  for (int64_t i = 0; i < 9; i++) EXPECT_NEAR(o.value.get(i), before[size_t(i)] * std::pow(1 - 1e-3, 20), 1e-14);
}

// Steps far below the spacing of bf16 (2^-8 near one) add up in the f32 master and reach the value in the end.
TEST(AdamW, Bf16ValueFollowsItsMaster) {
  Optimized o(DType::bf16, 5);
  o.value.fill(1);
  o.master.fill(1);
  o.grad.fill(1);
  o.step(1, 1e-4, 0);
  EXPECT_NEAR(o.master.get(0), 1 - 1e-4, 1e-7);
  EXPECT_EQ(o.value.get(0), 1) << "one step is too small to see in bf16";
  for (int64_t t = 2; t <= 100; t++) o.step(t, 1e-4, 0);
  EXPECT_NEAR(o.master.get(0), 1 - 1e-2, 1e-5);
  EXPECT_EQ(o.value.get(0), double(float(bf16(float(o.master.get(0))))));
  EXPECT_LT(o.value.get(0), 1);
}

TEST(AdamW, GradScaleScalesTheGradient) {
  Optimized scaled(DType::f64, 9), plain(DType::f64, 9);
  for (int64_t i = 0; i < 9; i++) plain.grad.set(i, plain.grad.get(i) * 0.25);
  scaled.step(1, 1e-2, 0.1, 0.25);
  plain.step(1, 1e-2, 0.1);
  EXPECT_EQ(scaled.value.values(), plain.value.values());
  EXPECT_EQ(scaled.v.values(), plain.v.values());
}

Results run(DType d) {
  Optimized o(d, 1003);
  for (int64_t t = 1; t <= 5; t++) o.step(t, 1e-2, 0.1, 0.5);
  return {record("value", o.value), record("p", o.p()), record("m", o.m), record("v", o.v)};
}
TEST(AdamW, Twins) { expect_twins(run); }
TEST(AdamW, ThreadIndependent) { expect_thread_independent(run); }

TEST(AdamW, Doors) {
  Stream dry(true);
  const Tensor value = view(nullptr, DType::bf16, {4, 6}), p = view(nullptr, DType::f32, {4, 6});
  const AdamW good{.value = value,
                   .p = p,
                   .m = p,
                   .v = p,
                   .grad = p,
                   .lr = 1,
                   .beta1 = 0.9,
                   .beta2 = 0.9,
                   .eps = 1,
                   .weight_decay = 0,
                   .grad_scale = 1,
                   .t = 1};
  const auto call = [&](auto&& change) {
    AdamW a = good;
    change(a);
    adamw(dry, a);
  };
  call([](AdamW&) {});
  expect_refused({"p bf16 (4, 6)"}, [&] { call([&](AdamW& a) { a.p = value; }); });
  expect_refused({"p f32 (4, 6)", "value f64 (4, 6)"}, [&] { call([&](AdamW& a) { a.value = view(nullptr, DType::f64, {4, 6}); }); });
  expect_refused({"bf16 (4, 6)", "p f32 (4, 6)"}, [&] { call([&](AdamW& a) { a.grad = value; }); });
  expect_refused({"f32 (4, 5)", "p f32 (4, 6)"}, [&] { call([&](AdamW& a) { a.m = view(nullptr, DType::f32, {4, 5}); }); });
  expect_refused({"value bf16 (3)"}, [&] { call([&](AdamW& a) { a.value = view(nullptr, DType::bf16, {3}); }); });
  expect_refused({"t 0"}, [&] { call([](AdamW& a) { a.t = 0; }); });
}

}  // namespace
}  // namespace wyvern
