#include "trainer/interop/hf_rope.h"

#include <cmath>

#include "kernels/base/check.h"

namespace wyvern {
namespace {

constexpr double kDefaultBase = 10000;      // of all families here
constexpr double kMaxBase = 1e12, kMaxFactor = 1e6;

void read_llama3(HfKeys& keys, RopeConfig& c) {
  c.scaling = RopeConfig::llama3;
  c.factor = keys.number("factor", {}, 1, kMaxFactor);
  c.low_freq_factor = keys.number("low_freq_factor", {}, 1e-6, kMaxFactor);
  c.high_freq_factor = keys.number("high_freq_factor", {}, 1e-6, kMaxFactor);
  c.original_context = keys.integer("original_max_position_embeddings");
}

// cos and sin are multiplied by attention_factor; absent, by m(mscale) / m(mscale_all_dim) with m(x) = 0.1 x ln(factor) + 1 when
// both are given and not 0; else by m(1), which is what Wyvern's yarn does by itself.
std::optional<double> yarn_magnitude(HfKeys& keys, double factor) {
  const double mscale = keys.number("mscale", 0, -1e3, 1e3), all_dim = keys.number("mscale_all_dim", 0, -1e3, 1e3);
  const auto m = [&](double x) { return 0.1 * x * std::log(factor) + 1; };
  if (keys.has("attention_factor")) return keys.number("attention_factor", {}, 1e-6, 1e3);
  if (mscale != 0 && all_dim != 0) return m(mscale) / m(all_dim);
  return {};
}

void read_yarn(HfKeys& keys, RopeConfig& c, int64_t context) {
  c.scaling = RopeConfig::yarn;
  c.original_context = keys.integer("original_max_position_embeddings", context);
  c.factor = keys.number("factor", double(context) / double(c.original_context), 1, kMaxFactor);
  const auto beta = [&](const char* key, double otherwise) {      // transformers takes 0 for "not given"
    const double x = keys.number(key, 0, 0, kMaxFactor);
    return x == 0 ? otherwise : x;
  };
  c.beta_fast = beta("beta_fast", 32);
  c.beta_slow = beta("beta_slow", 1);
  c.truncate = keys.boolean("truncate", true);
  c.magnitude = yarn_magnitude(keys, c.factor);
}

std::string read_type(HfKeys& keys) {       // "type" is the older name of "rope_type"
  const std::string type = keys.text("rope_type", keys.text("type", "default"));
  if (keys.text("type", type) != type) keys.refuse("type", fmt::format("contradicts rope_type \"{}\"; keep one of them", type));
  return type;
}

void read_scaling(HfKeys& keys, RopeConfig& c, int64_t context) {
  const std::string type = read_type(keys);
  keys.only("partial_rotary_factor", 1.0);
  if (type == "linear") {
    c.scaling = RopeConfig::linear;
    c.factor = keys.number("factor", {}, 1, kMaxFactor);
  } else if (type == "llama3") {
    read_llama3(keys, c);
  } else if (type == "yarn") {
    read_yarn(keys, c, context);
  } else if (type != "default") {
    keys.refuse(keys.has("rope_type") ? "rope_type" : "type", "this rule is not implemented; default, linear, llama3 and yarn are read");
  }
  keys.finish();
}

}  // namespace

RopeConfig read_hf_rope(HfKeys& config, int64_t context) {
  RopeConfig c;
  c.base = config.number("rope_theta", kDefaultBase, 1, kMaxBase);
  const bool theta_given = config.has("rope_theta");
  if (config.has("rope_parameters")) {
    if (config.has("rope_scaling")) config.refuse("rope_scaling", "rope_parameters is given too; keep one of them");
    HfKeys keys = config.map("rope_parameters");
    const double base = keys.number("rope_theta", c.base, 1, kMaxBase);
    if (theta_given && base != c.base)
      config.refuse("rope_theta", fmt::format("contradicts rope_parameters.rope_theta = {}; keep one of them", base));
    c.base = base;
    read_scaling(keys, c, context);
  } else if (config.has("rope_scaling")) {
    HfKeys keys = config.map("rope_scaling");
    read_scaling(keys, c, context);
  }
  return c;
}

}  // namespace wyvern
