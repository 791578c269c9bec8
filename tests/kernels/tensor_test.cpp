#include "kernels/base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

TEST(Tensor, AbsentIsNotNull) {
  const Tensor absent, dry = view(nullptr, DType::f32, {2, 3});
  EXPECT_FALSE(bool(absent));
  EXPECT_EQ(absent.numel(), 0);
  EXPECT_EQ(to_string(absent), "absent");
  EXPECT_TRUE(bool(dry));
  EXPECT_EQ(dry.numel(), 6);
  EXPECT_EQ(dry.bytes(), 24);
  EXPECT_EQ(to_string(dry), "f32 (2, 3)");
}

TEST(Tensor, RowsAreTheOnlySlice) {
  float memory[12] = {};
  const Tensor t = view(memory, DType::f32, {4, 3}), middle = rows(t, 1, 3);
  EXPECT_EQ(middle.data, memory + 3);
  EXPECT_TRUE(is(middle, {2, 3}));
  EXPECT_EQ(rows(t, 4, 4).numel(), 0);
  EXPECT_EQ(rows(view(nullptr, DType::f32, {4, 3}), 1, 3).data, nullptr);
  expect_refused({"rows [3, 5)", "(4, 3)"}, [&] { rows(t, 3, 5); });
  expect_refused({"rows [2, 1)"}, [&] { rows(t, 2, 1); });
  expect_refused({"absent"}, [&] { rows(Tensor{}, 0, 0); });
}

TEST(Tensor, ReshapeKeepsTheElements) {
  float memory[12] = {};
  const Tensor t = reshape(view(memory, DType::f32, {4, 3}), {2, 2, 3});
  EXPECT_EQ(t.data, memory);
  EXPECT_TRUE(is(t, {2, 2, 3}));
  EXPECT_FALSE(is(t, {2, 6}));
  EXPECT_FALSE(is(t, {2, 2, 4}));
  EXPECT_EQ(shape_of(t), (Shape{2, 2, 3}));
  expect_refused({"f32 (4, 3)", "(5, 2)"}, [&] { reshape(view(memory, DType::f32, {4, 3}), {5, 2}); });
  expect_refused({"6 dims"}, [&] { view(nullptr, DType::f32, {1, 1, 1, 1, 1, 1}); });
}

TEST(Tensor, AsChecksTheType) {
  float memory[2] = {1, 2};
  const Tensor t = view(memory, DType::f32, {2});
  EXPECT_EQ(as<float>(t)[1], 2);
  expect_refused({"tensor is f32, wanted bf16"}, [&] { as<bf16>(t); });
  expect_refused({"i32"}, [&] { with_float(DType::i32, [](auto) {}); });
}

TEST(Bf16, RoundsToNearestEven) {
  const struct { float from, to; } table[] = {
      {0, 0}, {1, 1}, {-2.5f, -2.5f},
      {1 + 0x1p-8f, 1},                       // halfway, the even neighbour is below
      {1 + 3 * 0x1p-8f, 1 + 4 * 0x1p-8f},     // halfway, the even neighbour is above
      {1 + 0x1p-8f + 0x1p-20f, 1 + 0x1p-7f},  // just over halfway
      {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()},
      {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()}};
  for (const auto& c : table) {
    EXPECT_EQ(float(bf16(c.from)), c.to) << c.from;
    EXPECT_EQ(float(bf16(-c.from)), -c.to) << -c.from;
  }
  EXPECT_TRUE(std::signbit(float(bf16(-0.0f))));
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu})      // a NaN whose payload lies in the lower half stays one
    EXPECT_TRUE(std::isnan(float(bf16(std::bit_cast<float>(bits))))) << std::hex << bits;
}

TEST(Bf16, EveryValueSurvivesTheTrip) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    bf16 x;
    x.bits = uint16_t(bits);
    const float f = x;
    if (std::isnan(f)) EXPECT_TRUE(std::isnan(float(bf16(f))));
    else ASSERT_EQ(bf16(f).bits, bits);
  }
}

}  // namespace
}  // namespace wyvern
