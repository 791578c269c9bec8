// The frequencies of rotary embeddings under the scaling rules in use. inv_freq[i] = base^(-2i/D), i < D/2, then
//   linear   position interpolation (2306.15595): inv_freq / factor
//   ntk      base * factor^(D/(D-2))
//   llama3   long wavelengths divided by factor, short ones kept, a linear blend between (Llama 3.1)
//   yarn     2309.00071: divided below the ramp, kept above it; cos and sin times `magnitude`
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "configs/node.h"

namespace wyvern {

struct RopeConfig {
  double base = 10000;
  enum Scaling : uint8_t { none, linear, ntk, llama3, yarn } scaling = none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;      // llama3
  double beta_fast = 32, beta_slow = 1;                  // yarn
  int64_t original_context = 0;                          // llama3, yarn
  std::optional<double> magnitude;                       // yarn; default 0.1 ln(factor) + 1
  bool truncate = true;                                  // yarn: round the ramp's ends to whole channels
};

std::optional<RopeConfig> read_rope(const Node& attention);      // `rope: none` or `rope: {base, scaling}`
std::vector<double> rope_frequencies(const RopeConfig&, int64_t D);
double rope_magnitude(const RopeConfig&);

}  // namespace wyvern
