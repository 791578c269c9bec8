// Schedules: a factor in [0, 1] as a function of the step. Warm-up is linear and never 0: step s of `warmup` gives
// (s + 1) / warmup. After it the factor goes from 1 to `final` over the rest of the run:
//   constant | linear | cosine | wsd (1 until `decay` steps before the end, then linear; warm-up-stable-decay, trapezoid)
#pragma once
#include <cstdint>
#include <string>

#include "configs/node.h"

namespace wyvern {

struct Schedule {
  enum Kind : uint8_t { constant, linear, cosine, wsd } kind = constant;
  int64_t warmup = 0;
  int64_t decay = 0;       // wsd: length of the last part
  double final_value = 0;
  int64_t steps = 0;       // of the run

  double at(int64_t step) const;      // step is 0-based; beyond the end: final_value
  static Schedule from(const Node& parent, const char* key, int64_t steps);
};

// A number, or {value, kind, warmup, final, decay}: any scalar of a group may move over the run.
struct ScalarSchedule {
  double value = 0;
  Schedule schedule;
  double at(int64_t step) const { return value * schedule.at(step); }
  static ScalarSchedule from(const Node& parent, std::string_view key, std::optional<double> def, Range range, std::string_view doc,
                             int64_t steps);
};

}  // namespace wyvern
