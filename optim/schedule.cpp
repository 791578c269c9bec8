#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace wyvern {
namespace {

void read_shape(const Node& n, Schedule& s) {
  const std::string kind = n.choice("kind", {"constant", "linear", "cosine", "wsd"}, "constant", "how the factor moves after the warm-up");
  s.kind = kind == "linear" ? Schedule::linear : kind == "cosine" ? Schedule::cosine : kind == "wsd" ? Schedule::wsd : Schedule::constant;
  s.warmup = n.integer("warmup", 0, {0, int64_t(1) << 40}, "steps of linear warm-up; the first step is never 0");
  s.final_value = n.number("final", 0, {0, 1}, "factor at the end of the run (linear, cosine, wsd)");
  s.decay = n.integer("decay", 0, {0, int64_t(1) << 40}, "wsd: steps of the final descent");
  if (s.kind != Schedule::wsd && s.decay) n.error("decay", "only the wsd schedule has a decay part");
  if (s.warmup + s.decay > s.steps)
    n.error("warmup", fmt::format("warmup {} + decay {} = {} exceeds train.steps = {}", s.warmup, s.decay, s.warmup + s.decay, s.steps));
}

}  // namespace

double Schedule::at(int64_t step) const {
  if (step < warmup) return double(step + 1) / double(warmup);
  if (kind == constant) return 1;
  const int64_t begin = kind == wsd ? steps - decay : warmup;
  if (step < begin) return 1;
  if (step >= steps) return final_value;
  const double progress = double(step - begin) / double(std::max<int64_t>(1, steps - begin));
  const double down = kind == cosine ? 0.5 * (1 + std::cos(M_PI * progress)) : 1 - progress;
  return final_value + (1 - final_value) * down;
}

Schedule Schedule::from(const Node& parent, const char* key, int64_t steps) {
  Schedule s;
  s.steps = steps;
  read_shape(parent.map(key, "factor on every group's lr over the run"), s);
  return s;
}

ScalarSchedule ScalarSchedule::from(const Node& parent, std::string_view key, std::optional<double> def, Range range, std::string_view doc,
                                    int64_t steps) {
  ScalarSchedule s;
  s.schedule.steps = steps;
  if (parent.has(key) && !parent.is_text(key)) {
    const Node n = parent.map(key, doc);
    s.value = n.number("value", {}, range, "the scalar before the schedule's factor");
    read_shape(n, s.schedule);
  } else {
    s.value = parent.number(key, def, range, doc);
  }
  return s;
}

}  // namespace wyvern
