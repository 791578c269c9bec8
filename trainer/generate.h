// Generation with a key/value cache: the prompt in one pass, then token by token.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "trainer/instance.h"

namespace wyvern {

struct SampleOptions {
  int64_t tokens = 64;             // to generate
  double temperature = 1;          // 0 = greedy
  int64_t top_k = 0;               // 0 = all
  double top_p = 1;                // nucleus: the smallest set of this probability
  uint64_t seed = 1;
  std::optional<int32_t> stop;     // end of text
};
struct Generation {
  std::vector<int32_t> tokens;     // the new ones
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
  bool context_full = false;       // stopped because the model's context ended
};

// The instance must have passes {1, prompt, decode} and {1, 1, decode}; see generation_passes. Padding ids are never drawn.
Generation generate(Instance&, const std::vector<int32_t>& prompt, const SampleOptions&, const std::function<void(int32_t)>& on_token = {});
std::vector<PassSize> generation_passes(int64_t prompt_tokens);
// One draw from a row of logits; position feeds the counter, so that a text depends on the seed alone.
int32_t sample_token(const double* logits, int64_t vocab, const SampleOptions&, int64_t position);

}  // namespace wyvern
