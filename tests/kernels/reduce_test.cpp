#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;

TEST(Reduce, AgreesWithLongDoubles) {
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (int64_t n : {1, 7, 8, 1000, (1 << 15) - 1, (1 << 15) + 9, 100003}) {
      const OwnedTensor x = OwnedTensor::normal(d, {n}, 1);
      long double squares = 0, total = 0, size = 0;
      for (double v : x.values()) squares += (long double)(v) * v, total += v, size += std::abs(v);
      double got_squares = 0, got_total = 0;
      sum_squares(stream, {.out = &got_squares, .x = x});
      sum(stream, {.out = &got_total, .x = x});
      EXPECT_NEAR(got_squares, double(squares), 1e-13 * double(squares)) << name_of(d) << " " << n;
      EXPECT_NEAR(got_total, double(total), 1e-13 * double(size)) << name_of(d) << " " << n;
    }
}

TEST(Reduce, AddsToWhatIsThere) {
  const OwnedTensor x = OwnedTensor::filled(DType::f32, {10}, 2);
  double squares = 1, total = 1;
  sum_squares(stream, {.out = &squares, .x = x});
  sum(stream, {.out = &total, .x = x});
  EXPECT_EQ(squares, 41);
  EXPECT_EQ(total, 21);
}

TEST(Reduce, NanAnywhereShows) {
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (int64_t at : {0, 9, 999, 1002}) {
      OwnedTensor x = OwnedTensor::normal(d, {1003}, 1);
      x.set(at, std::nan(""));
      double squares = 0;
      sum_squares(stream, {.out = &squares, .x = x});
      EXPECT_TRUE(std::isnan(squares)) << at;
    }
}

TEST(Reduce, ThreadIndependent) {
  expect_thread_independent([](DType d) {
    const OwnedTensor x = OwnedTensor::normal(d, {200001}, 1);
    double squares = 0, total = 0;
    sum_squares(stream, {.out = &squares, .x = x});
    sum(stream, {.out = &total, .x = x});
    return Results{{"sums", {2}, {squares, total}}};
  });
}

TEST(Reduce, Doors) {
  Stream dry(true);
  double out = 5;
  sum(dry, {.out = &out, .x = view(nullptr, DType::f32, {4})});
  sum_squares(dry, {.out = &out, .x = view(nullptr, DType::f32, {4})});
  EXPECT_EQ(out, 5);
  expect_refused({"absent"}, [&] { sum(dry, {.out = &out, .x = {}}); });
  expect_refused({"f32 (4)"}, [&] { sum_squares(dry, {.out = nullptr, .x = view(nullptr, DType::f32, {4})}); });
}

}  // namespace
}  // namespace wyvern
