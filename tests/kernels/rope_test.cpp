#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;
constexpr int64_t kN = 9, kGroups = 3, kD = 6, kW = 25, kWo = 23, kFrom = 4, kTo = 2;     // x and out differ in width and offset
const std::vector<double> kFrequencies = {1.0, 0.215, 0.0464};
const std::vector<int32_t> kPositions = {0, 1, 2, 3, 0, 1, 2, 1000, 8191};                // a new document in the middle, far positions

struct Turn {
  explicit Turn(DType d, double magnitude = 1)
      : magnitude(magnitude), x(OwnedTensor::normal(d, {kN, kW}, 1)), out(OwnedTensor::filled(d, {kN, kWo}, 0.5)), dx(d, {kN, kW}),
        dout(OwnedTensor::normal(d, {kN, kWo}, 2)), positions(OwnedTensor::ints(kPositions)) {}
  void run(Columns to, Columns from, bool backward) {
    rope(stream, {.out = to, .x = from, .positions = positions, .inv_freq = kFrequencies.data(), .magnitude = magnitude, .groups = kGroups,
                  .D = kD, .backward = backward});
  }
  void forward() { run({out, kTo}, {x, kFrom}, false); }
  void backward() { run({dx, kFrom}, {dout, kTo}, true); }
  double magnitude;
  OwnedTensor x, out, dx, dout, positions;
};

TEST(Rope, Gradients) {
  for (double magnitude : {1.0, 1.3}) {
    Turn t(DType::f64, magnitude);
    const DifferentiableOp op{[&] { t.forward(); },
                              [&] { t.backward(); },
                              {{"x", t.x, t.dx, Gives::written, {{kFrom, kFrom + kGroups * kD}}}},
                              {{t.out, t.dout}}};
    expect_gradients(op);
    expect_accumulates(op);
  }
}

TEST(Rope, TurnsPairsAsComplexNumbers) {
  Turn t(DType::f64, 1.3);
  t.forward();
  for (int64_t n = 0; n < kN; n++)
    for (int64_t g = 0; g < kGroups; g++)
      for (int64_t i = 0; i < kD / 2; i++) {
        const int64_t from = n * kW + kFrom + g * kD + i, to = n * kWo + kTo + g * kD + i;
        const auto want =
            std::complex<double>(t.x.get(from), t.x.get(from + kD / 2)) * std::polar(1.3, kPositions[size_t(n)] * kFrequencies[size_t(i)]);
        EXPECT_NEAR(t.out.get(to), want.real(), 1e-12);
        EXPECT_NEAR(t.out.get(to + kD / 2), want.imag(), 1e-12);
      }
  EXPECT_EQ(t.out.get(kTo - 1), 0.5);                      // nothing outside the addressed columns
  EXPECT_EQ(t.out.get(kTo + kGroups * kD), 0.5);
}

TEST(Rope, BackwardIsTheAdjoint) {                          // <R x, y> = <x, R^T y>
  Turn t(DType::f64, 1.3);
  t.forward();
  t.backward();
  double left = 0, right = 0;
  for (int64_t n = 0; n < kN; n++)
    for (int64_t i = 0; i < kGroups * kD; i++) {
      left += t.out.get(n * kWo + kTo + i) * t.dout.get(n * kWo + kTo + i);
      right += t.x.get(n * kW + kFrom + i) * t.dx.get(n * kW + kFrom + i);
    }
  EXPECT_NEAR(left, right, 1e-13 * std::abs(left) + 1e-12);
}

TEST(Rope, InPlace) {
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (bool backward : {false, true}) {
      Turn t(d);
      OwnedTensor apart(d, {kN, kW});
      apart.copy_from(t.x);
      t.run({apart, kFrom}, {t.x, kFrom}, backward);
      t.run({t.x, kFrom}, {t.x, kFrom}, backward);
      EXPECT_EQ(t.x.values(), apart.values());
    }
}

Results run(DType d) {
  Turn t(d);
  t.dx.fill(0);
  t.forward();
  t.backward();
  return {record("out", t.out), record("dx", t.dx)};
}
TEST(Rope, Twins) { expect_twins(run); }                     // at position 8191 an angle in f32 would be wrong by 5e-4
TEST(Rope, ThreadIndependent) { expect_thread_independent(run); }

TEST(Rope, Doors) {
  Stream dry(true);
  const Tensor x = view(nullptr, DType::f32, {4, 12}), positions = view(nullptr, DType::i32, {4});
  const Rope good{.out = {x, 0}, .x = {x, 0}, .positions = positions, .inv_freq = kFrequencies.data(), .groups = 2, .D = 6};
  const auto call = [&](auto&& change) {
    Rope a = good;
    change(a);
    rope(dry, a);
  };
  call([](Rope&) {});
  expect_refused({"bf16 (4, 12)", "f32 (4, 12)"}, [&] { call([](Rope& a) { a.out.matrix = view(nullptr, DType::bf16, {4, 12}); }); });
  expect_refused({"(5, 12)", "(4, 12)"}, [&] { call([](Rope& a) { a.out.matrix = view(nullptr, DType::f32, {5, 12}); }); });
  expect_refused({"D = 5 must be even"}, [&] { call([](Rope& a) { a.D = 5; }); });
  expect_refused({"2 groups of 6"}, [&] { call([](Rope& a) { a.x.offset = 1; }); });
  expect_refused({"2 groups of 6"}, [&] { call([](Rope& a) { a.out.offset = -1; }); });
  expect_refused({"positions i32 (3)"}, [&] { call([](Rope& a) { a.positions = rows(a.positions, 0, 3); }); });
  expect_refused({"positions f32 (4)"}, [&] { call([](Rope& a) { a.positions = view(nullptr, DType::f32, {4}); }); });
}

}  // namespace
}  // namespace wyvern
