#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/philox.h"
#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;
constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16};

TEST(Elementwise, Zero) {
  for (int64_t n : {1, 7, 3 << 20}) {                      // the last is cut over threads
    OwnedTensor y(DType::bf16, {n});
    zero(stream, {.y = y});
    for (int64_t i = 0; i < n; i += 1 + n / 1000) ASSERT_EQ(y.get(i), 0) << i;
    EXPECT_EQ(y.get(n - 1), 0);
  }
}

TEST(Elementwise, AddRoundsOnceAndMayBeInPlace) {
  for (DType d : kFloats) {
    OwnedTensor a = OwnedTensor::normal(d, {5, 33}, 1), b = OwnedTensor::normal(d, {5, 33}, 2), y(d, {5, 33}), want(d, {5, 33});
    for (int64_t i = 0; i < 5 * 33; i++) want.set(i, a.get(i) + b.get(i));
    add(stream, {.y = y, .a = a, .b = b});
    EXPECT_EQ(y.values(), want.values());
    add(stream, {.y = a, .a = a, .b = b});
    EXPECT_EQ(a.values(), want.values());
  }
}

TEST(Elementwise, CastBetweenAllFloats) {
  for (DType from : kFloats)
    for (DType to : kFloats) {
      OwnedTensor x = OwnedTensor::normal(from, {77}, 1), y(to, {77}), want(to, {77});
      x.set(0, 1.0 + 0x1p-8);                              // halfway between two bf16: to the even one below
      x.set(1, 1.0 + 3 * 0x1p-8);                          // and to the even one above
      x.set(2, std::nan(""));
      for (int64_t i = 3; i < 77; i++) want.set(i, x.get(i));
      cast(stream, {.y = y, .x = x});
      for (int64_t i = 3; i < 77; i++) ASSERT_EQ(y.get(i), want.get(i)) << name_of(from) << " to " << name_of(to);
      if (to == DType::bf16 && from != DType::bf16) {
        EXPECT_EQ(y.get(0), 1.0);
        EXPECT_EQ(y.get(1), 1.0 + 4 * 0x1p-8);
      }
      EXPECT_TRUE(std::isnan(y.get(2)));
    }
}

// ---- dropout -----------------------------------------------------------------------------------------------------------
constexpr int64_t kT = 16, kC = 257;                       // 257: the last Philox call serves one channel

OwnedTensor mask(DType d, double p, uint64_t key, int64_t sequences, int64_t first_sequence = 0) {
  OwnedTensor x = OwnedTensor::filled(d, {sequences * kT, kC}, 1), y(d, {sequences * kT, kC});
  dropout(stream, {.y = y, .x = x, .p = p, .key = key, .T = kT, .first_sequence = first_sequence});
  return y;
}
int64_t differences(const OwnedTensor& a, const OwnedTensor& b) {
  int64_t n = 0;
  for (int64_t i = 0; i < a.view().numel(); i++) n += a.get(i) != b.get(i);
  return n;
}

TEST(Dropout, KeepsTheRightShareAtTheRightSize) {
  for (double p : {0.1, 0.5, 0.9}) {
    const OwnedTensor y = mask(DType::f64, p, 42, 8);
    const double n = double(y.view().numel());
    int64_t dropped = 0;
    for (double v : y.values()) {
      ASSERT_TRUE(v == 0 || v == 1 / (1 - p)) << v;
      dropped += v == 0;
    }
    EXPECT_NEAR(double(dropped) / n, p, 4 * std::sqrt(p * (1 - p) / n));   // four standard deviations; the key is fixed
  }
  const OwnedTensor none = mask(DType::f64, 0, 42, 1);
  for (double v : none.values()) ASSERT_EQ(v, 1);
}

TEST(Dropout, MaskDependsOnTheGlobalSequenceAlone) {
  const OwnedTensor whole = mask(DType::f32, 0.3, 42, 6, 10), head = mask(DType::f32, 0.3, 42, 2, 10),
                    tail = mask(DType::f32, 0.3, 42, 4, 12);
  const int64_t cut = head.view().numel();
  for (int64_t i = 0; i < whole.view().numel(); i++) ASSERT_EQ(whole.get(i), i < cut ? head.get(i) : tail.get(i - cut)) << i;
  EXPECT_GT(differences(mask(DType::f32, 0.3, 42, 1, 0), mask(DType::f32, 0.3, 42, 1, 1)), 0) << "two sequences share a mask";
}

TEST(Dropout, RowsAndChannelsHaveMasksOfTheirOwn) {         // independent neighbours differ in 2 p (1 - p) = 42 % of the places
  const OwnedTensor y = mask(DType::f32, 0.3, 42, 4);
  const int64_t N = 4 * kT, n = y.view().numel();
  for (int64_t apart : {int64_t(1), int64_t(4), kC, 2 * kC, kT * kC}) {
    int64_t differ = 0;
    for (int64_t i = 0; i + apart < n; i++) differ += y.get(i) != y.get(i + apart);
    EXPECT_NEAR(double(differ) / double(n - apart), 0.42, 0.03) << apart << " apart in " << N << " rows of " << kC;
  }
}

TEST(Dropout, EveryPartOfTheKeyMatters) {                    // two masks differ as often
  const RngKey base{.seed = 1337, .step = 5, .sublayer = 3};
  const auto with = [&](auto&& change) {
    RngKey k = base;
    change(k);
    return k.key(Purpose::residual);
  };
  const uint64_t others[] = {with([](RngKey& k) { k.sublayer = 4; }), with([](RngKey& k) { k.step = 6; }),
                             with([](RngKey& k) { k.seed = 1338; }), base.key(Purpose::attention), base.key(Purpose::embedding)};
  const OwnedTensor first = mask(DType::f32, 0.3, base.key(Purpose::residual), 2);
  for (uint64_t key : others) {
    const double share = double(differences(first, mask(DType::f32, 0.3, key, 2))) / double(first.view().numel());
    EXPECT_NEAR(share, 0.42, 0.03);
  }
}

TEST(Dropout, IsItsOwnBackward) {
  OwnedTensor x = OwnedTensor::normal(DType::f64, {2 * kT, 13}, 1), y(DType::f64, {2 * kT, 13}),
              dy = OwnedTensor::normal(DType::f64, {2 * kT, 13}, 2), dx(DType::f64, {2 * kT, 13});
  const auto drop = [&](const OwnedTensor& to, const OwnedTensor& from) {
    dropout(stream, {.y = to, .x = from, .p = 0.3, .key = 42, .T = kT, .first_sequence = 3});
  };
  const DifferentiableOp op{[&] { drop(y, x); }, [&] { drop(dx, dy); }, {{"x", x, dx, Gives::written}}, {{y, dy}}};
  expect_gradients(op);
  expect_accumulates(op);
  drop(dy, dy);                                            // in place
  EXPECT_EQ(dy.values(), dx.values());
}

Results run(DType d) {
  OwnedTensor x = OwnedTensor::normal(d, {6 * kT, 70}, 1), b = OwnedTensor::normal(d, {6 * kT, 70}, 2), sum(d, shape_of(x)),
              dropped(d, shape_of(x));
  add(stream, {.y = sum, .a = x, .b = b});
  dropout(stream, {.y = dropped, .x = x, .p = 0.3, .key = 42, .T = kT, .first_sequence = 3});
  return {record("sum", sum), record("dropped", dropped)};
}
TEST(Elementwise, Twins) { expect_twins(run); }
TEST(Elementwise, ThreadIndependent) { expect_thread_independent(run); }

TEST(Elementwise, Doors) {
  Stream dry(true);
  const Tensor x = view(nullptr, DType::bf16, {4, 6}), other = view(nullptr, DType::f32, {4, 6}),
               small = view(nullptr, DType::bf16, {4, 5});
  zero(dry, {.y = x});
  add(dry, {.y = x, .a = x, .b = x});
  cast(dry, {.y = x, .x = other});
  dropout(dry, {.y = x, .x = x, .p = 0.1, .key = 1, .T = 2});
  expect_refused({"absent"}, [&] { zero(dry, {.y = {}}); });
  expect_refused({"(4, 6)", "(4, 5)"}, [&] { add(dry, {.y = x, .a = x, .b = small}); });
  expect_refused({"bf16 (4, 6)", "f32 (4, 6)"}, [&] { add(dry, {.y = x, .a = x, .b = other}); });
  expect_refused({"f32 (4, 6)", "bf16 (4, 5)"}, [&] { cast(dry, {.y = other, .x = small}); });
  expect_refused({"i32 is not a floating type"}, [&] { cast(stream, {.y = other, .x = view(nullptr, DType::i32, {4, 6})}); });
  expect_refused({"bf16 (4, 6)", "f32 (4, 6)"}, [&] { dropout(dry, {.y = other, .x = x, .p = 0.1, .key = 1, .T = 2}); });
  expect_refused({"p 1"}, [&] { dropout(dry, {.y = x, .x = x, .p = 1, .key = 1, .T = 2}); });
  expect_refused({"T 3", "(4, 6)"}, [&] { dropout(dry, {.y = x, .x = x, .p = 0.1, .key = 1, .T = 3}); });
}

}  // namespace
}  // namespace wyvern
