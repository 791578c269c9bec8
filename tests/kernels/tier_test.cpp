#include "kernels/cpu/isa/tier.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/base/check.h"
#include "kernels/cpu/isa/peak.h"

namespace wyvern::isa {
namespace {

constexpr Tier kAll[] = {Tier::plain, Tier::avx2, Tier::avx512, Tier::amx};

class TierTest : public ::testing::Test {
 protected:
  void TearDown() override { force_tier(before_); }
  Tier before_ = tier();
};

TEST_F(TierTest, LowerTiersCanBeForcedAndHigherOnesCannot) {
  for (Tier t : kAll) {
    if (t <= detected_tier()) {
      force_tier(t);
      EXPECT_EQ(tier(), t);
      continue;
    }
    const Tier now = tier();
    try {
      force_tier(t);
      FAIL() << name_of(t) << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, kEnvironment);
      EXPECT_NE(std::string(e.what()).find(name_of(t)), std::string::npos) << e.what();
    }
    EXPECT_EQ(tier(), now);
  }
}

// The variable is read once, so each word is tried in a process of its own. Exit code: the tier, or 100 + the error's code.
int exit_code_with(const char* word) {
  setenv("WYVERN_CPU_TIER", word, 1);
  try {
    return int(tier());
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 100 + e.code;
  }
}

TEST(TierDeathTest, TheEnvironmentVariable) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (Tier t : kAll) {
    const int expected = t <= detected_tier() ? int(t) : 100 + kEnvironment;
    EXPECT_EXIT(std::exit(exit_code_with(name_of(t))), ::testing::ExitedWithCode(expected), "");
  }
  EXPECT_EXIT(std::exit(exit_code_with("")), ::testing::ExitedWithCode(int(detected_tier())), "");
  EXPECT_EXIT(std::exit(exit_code_with("sse9")), ::testing::ExitedWithCode(100 + kUsage), "sse9.*plain \\| avx2 \\| avx512 \\| amx");
}

TEST_F(TierTest, ThePeakIsMeasuredInEveryTier) {
  double before = 0;
  for (Tier t : kAll) {
    if (t > detected_tier()) break;
    force_tier(t);
    const double f32 = measure_peak_flops(false), bf16 = measure_peak_flops(true);
    EXPECT_GT(f32, 1e8) << name_of(t);                   // a slow core with one multiply-add a cycle and thread
    EXPECT_GT(bf16, t == Tier::amx ? 2 * f32 : 1e8);     // the matrix unit does 16 times the multiply-adds of the vector unit
    if (t >= Tier::avx2 && t <= Tier::avx512) {
      EXPECT_GT(f32, before) << name_of(t);              // wider vectors
    }
    before = f32;
  }
}

}  // namespace
}  // namespace wyvern::isa
