// Schedules against hand-computed tables, and what a config may say about them.
#include <gtest/gtest.h>

#include <cmath>

#include "optim/schedule.h"
#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

Schedule read(const std::string& map, int64_t steps) {
  const ConfigTree tree = ConfigTree::parse("schedule: " + map + "\n", "run.yaml");
  const Schedule s = Schedule::from(tree.root(), "schedule", steps);
  tree.check();
  return s;
}

TEST(Schedule, S32_CosineFromOneThousandthToOneTenThousandth) {
  const Schedule s = read("{kind: cosine, warmup: 10, final: 0.1}", 100);
  EXPECT_NEAR(1e-3 * s.at(50), 6.281e-4, 5e-8);                    // 1e-4 + 9e-4 (1 + cos(pi 40 / 90)) / 2
  EXPECT_DOUBLE_EQ(1e-3 * s.at(9), 1e-3);
  EXPECT_DOUBLE_EQ(s.at(55), 0.55);                                // half way down
  EXPECT_DOUBLE_EQ(s.at(100), 0.1);
  EXPECT_DOUBLE_EQ(s.at(1000), 0.1);
  for (int64_t t = 10; t < 100; t++) EXPECT_GT(s.at(t), s.at(t + 1)) << t;
}

TEST(Schedule, S33_WarmupStartsAboveZeroAndReachesThePeakOnce) {
  for (const char* kind : {"constant", "linear", "cosine", "wsd, decay: 20"}) {
    const Schedule s = read(std::string("{warmup: 10, kind: ") + kind + "}", 100);
    for (int64_t t = 0; t < 10; t++) EXPECT_DOUBLE_EQ(s.at(t), double(t + 1) / 10) << kind << " at " << t;
    EXPECT_DOUBLE_EQ(s.at(10), 1) << kind;
  }
  EXPECT_DOUBLE_EQ(read("{kind: cosine}", 100).at(0), 1);          // no warm-up: full at once
}

TEST(Schedule, LinearGoesStraightDown) {
  const Schedule s = read("{kind: linear, final: 0.2}", 10);
  for (int64_t t = 0; t <= 10; t++) EXPECT_NEAR(s.at(t), 1 - 0.08 * double(t), 1e-15) << t;
}

TEST(Schedule, WsdStaysThenFalls) {
  const Schedule s = read("{kind: wsd, warmup: 4, decay: 5, final: 0.5}", 20);
  for (int64_t t = 3; t <= 15; t++) EXPECT_EQ(s.at(t), 1) << t;
  const double tail[] = {0.9, 0.8, 0.7, 0.6, 0.5};
  for (int64_t t = 16; t <= 20; t++) EXPECT_NEAR(s.at(t), tail[t - 16], 1e-15) << t;
}

TEST(Schedule, ConstantIgnoresTheEnd) {
  const Schedule s = read("{kind: constant}", 10);
  for (int64_t t : {0, 5, 10, 99}) EXPECT_EQ(s.at(t), 1);
}

TEST(Schedule, TheDefaultIsConstant) { EXPECT_EQ(read("{}", 5).at(4), 1); }

TEST(Schedule, WhatDoesNotFitIsRefused) {
  expect_error(kUsage, {"warmup 60 + decay 50 = 110", "train.steps = 100", "run.yaml:1"},
               [] { read("{kind: wsd, warmup: 60, decay: 50}", 100); });
  expect_error(kUsage, {"only the wsd schedule"}, [] { read("{kind: cosine, decay: 5}", 100); });
  expect_error(kUsage, {"final"}, [] { read("{kind: cosine, final: 1.5}", 100); });
  expect_error(kUsage, {"cosin", "cosine"}, [] { read("{kind: cosin}", 100); });
}

ScalarSchedule read_scalar(const std::string& yaml) {
  const ConfigTree tree = ConfigTree::parse(yaml, "run.yaml");
  const ScalarSchedule s = ScalarSchedule::from(tree.root(), "wd", 0.3, {0, 10}, "doc", 100);
  tree.check();
  return s;
}
ScalarSchedule scalar(const std::string& value) { return read_scalar("wd: " + value + "\n"); }

TEST(ScalarSchedule, ANumberStandsStill) {
  for (int64_t t : {0, 50, 100}) {
    EXPECT_EQ(scalar("0.1").at(t), 0.1);
    EXPECT_EQ(read_scalar("{}").at(t), 0.3);                       // nothing given: the default
  }
}

TEST(ScalarSchedule, AMapMoves) {
  const ScalarSchedule s = scalar("{value: 0.2, kind: linear, final: 0.5}");
  EXPECT_DOUBLE_EQ(s.at(0), 0.2);
  EXPECT_DOUBLE_EQ(s.at(50), 0.15);
  EXPECT_DOUBLE_EQ(s.at(100), 0.1);
}

TEST(ScalarSchedule, RangesAndTyposAreNamed) {
  expect_error(kUsage, {"wd", "10"}, [] { scalar("11"); });
  expect_error(kUsage, {"value", "10"}, [] { scalar("{value: 11}"); });
  expect_error(kUsage, {"value"}, [] { scalar("{kind: linear}"); });
  expect_error(kUsage, {"valu", "value"}, [] { scalar("{value: 1, valu: 2}"); });
}

}  // namespace
}  // namespace wyvern
