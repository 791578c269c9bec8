#include "kernels/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace wyvern {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, KnownAnswers) {               // philox4x32-10 of Random123's kat_vectors (Salmon et al. 2011)
  EXPECT_EQ(philox(0, 0, 0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0u, ~0u, ~0u, ~0u), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(uniform(0, 0), 0.0);
  EXPECT_LT(uniform(~0u, ~0u), 1.0);
  EXPECT_NEAR(uniform(0x80000000u, 0), 0.5, 1e-15);
  EXPECT_NE(uniform(7, 0), uniform(7, 1u << 13)) << "the low word is not used";
}

TEST(Philox, UniformHasTheMomentsOfOne) {
  constexpr int n = 40000;
  double mean = 0, square = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Words w = philox(1337, i, 0, 0, 0);
    const double u = uniform(w[0], w[1]);
    mean += u / n;
    square += u * u / n;
  }
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(1 / 12.0 / n));              // four standard deviations; the counters are fixed
  EXPECT_NEAR(square, 1 / 3.0, 4 * std::sqrt(4 / 45.0 / n));
}

TEST(Philox, KeysDifferInEveryPart) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1, 1337})
    for (uint64_t step : {0, 1, 2})
      for (int sublayer : {-1, 0, 1, 23})
        for (Purpose p : {Purpose::embedding, Purpose::residual, Purpose::attention})
          keys.insert(RngKey{.seed = seed, .step = step, .sublayer = sublayer}.key(p));
  EXPECT_EQ(keys.size(), 3u * 3 * 4 * 3);
}

TEST(Philox, MixingDependsOnOrder) {
  EXPECT_NE(mix(mix(uint64_t(0), uint64_t(1)), uint64_t(2)), mix(mix(uint64_t(0), uint64_t(2)), uint64_t(1)));
  EXPECT_NE(mix(uint64_t(5), "ab"), mix(uint64_t(5), "ba"));
  EXPECT_NE(mix(uint64_t(5), "blocks.1.w"), mix(uint64_t(5), "blocks.2.w"));
  EXPECT_NE(mix(uint64_t(0), uint64_t(0)), 0u);
}

TEST(Philox, ThresholdIsTheShare) {
  EXPECT_EQ(drop_threshold(0), 0u);                                 // no word is below it: nothing is dropped
  EXPECT_EQ(drop_threshold(0.5), 0x80000000u);
  EXPECT_EQ(drop_threshold(0.25), 0x40000000u);
}

}  // namespace
}  // namespace wyvern
