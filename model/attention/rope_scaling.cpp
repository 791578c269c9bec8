#include "model/attention/rope_scaling.h"

#include <algorithm>
#include <cmath>

namespace wyvern {
namespace {

void read_scaling(const Node& rope, RopeConfig& c) {
  if (!rope.has("scaling")) {
    rope.text("scaling", "none", "none, or {kind: linear | ntk | llama3 | yarn, factor, ...}");
    return;
  }
  const Node s = rope.map("scaling", "stretches the usable context");
  const std::string kind = s.choice("kind", {"linear", "ntk", "llama3", "yarn"}, {}, "scaling rule");
  c.factor = s.number("factor", {}, {1, 1e6}, "new context / original context");
  if (kind == "linear") c.scaling = RopeConfig::linear;
  if (kind == "ntk") c.scaling = RopeConfig::ntk;
  if (kind == "llama3") {
    c.scaling = RopeConfig::llama3;
    c.low_freq_factor = s.number("low_freq_factor", 1, {0, 1e6, true}, "wavelengths beyond original_context / this are divided by factor");
    c.high_freq_factor = s.number("high_freq_factor", 4, {0, 1e6, true}, "wavelengths below original_context / this are kept");
    if (c.high_freq_factor <= c.low_freq_factor) s.error("high_freq_factor", "must exceed low_freq_factor");
  }
  if (kind == "yarn") {
    c.scaling = RopeConfig::yarn;
    c.beta_fast = s.number("beta_fast", 32, {0, 1e6, true}, "turns over the original context above which a channel is kept");
    c.beta_slow = s.number("beta_slow", 1, {0, 1e6, true}, "turns below which a channel is divided by factor");
    c.magnitude = s.number_or_none("magnitude", {}, {0, 1e3, true}, "factor on cos and sin; none = 0.1 ln(factor) + 1");
    c.truncate = s.boolean("truncate", true, "round the ends of the ramp to whole channels");
  }
  if (kind == "llama3" || kind == "yarn")
    c.original_context = s.integer("original_context", {}, {1, int64_t(1) << 40}, "context the base was trained at");
}

}  // namespace

std::optional<RopeConfig> read_rope(const Node& attention) {
  if (!attention.has("rope")) {
    attention.text("rope", "none", "none, or {base, scaling}: rotary positions");
    return {};
  }
  RopeConfig c;
  const Node rope = attention.map("rope", "rotary positions, half-split layout");
  c.base = rope.number("base", 10000, {1, 1e12}, "base of the geometric series of frequencies");
  read_scaling(rope, c);
  return c;
}

std::vector<double> rope_frequencies(const RopeConfig& c, int64_t D) {
  const double d = double(D), L = double(c.original_context);
  const double base = c.scaling == RopeConfig::ntk ? c.base * std::pow(c.factor, d / (d - 2)) : c.base;
  std::vector<double> freq(size_t(D / 2));
  for (size_t i = 0; i < freq.size(); i++) freq[i] = std::pow(base, -2.0 * double(i) / d);
  if (c.scaling == RopeConfig::linear)
    for (double& f : freq) f /= c.factor;
  if (c.scaling == RopeConfig::llama3)
    for (double& f : freq) {
      const double turns = L * f / (2 * M_PI);             // original context / wavelength
      const double blend = std::clamp((turns - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor), 0.0, 1.0);
      f = (1 - blend) * f / c.factor + blend * f;
    }
  if (c.scaling == RopeConfig::yarn) {
    const auto channel = [&](double turns) { return d * std::log(L / (2 * M_PI * turns)) / (2 * std::log(c.base)); };
    double low = channel(c.beta_fast), high = channel(c.beta_slow);
    if (c.truncate) { low = std::floor(low); high = std::ceil(high); }
    low = std::max(low, 0.0);
    high = std::min(high, d - 1);
    if (low == high) high += 0.001;
    for (size_t i = 0; i < freq.size(); i++) {
      const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
      freq[i] = freq[i] / c.factor * ramp + freq[i] * (1 - ramp);
    }
  }
  return freq;
}

double rope_magnitude(const RopeConfig& c) {
  if (c.scaling != RopeConfig::yarn) return 1;
  return c.magnitude ? *c.magnitude : 0.1 * std::log(c.factor) + 1;
}

}  // namespace wyvern
