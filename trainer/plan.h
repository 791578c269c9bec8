// plan: what a config will need, before anything is allocated: parameters by module, memory by kind (the dry pass of the very
// code that will run), FLOPs per token with the formula, tokens, steps, and a time estimate from a short measurement.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/instance.h"
#include "trainer/run_config.h"

namespace wyvern {

// FLOPs of one token in training, forward and backward:
//   6 x (weights that multiply: matrices, and the head even when it is tied; no tables, norms or biases; no padded rows)
// + 6 x sum over layers of heads x head_dim x T for causal softmax attention: the half that is computed; a window counts min(T, window).
struct Flops {
  int64_t weights = 0;                 // that multiply
  int64_t attention_width = 0;         // sum over layers of heads x head_dim x reach
  int64_t total() const { return 6 * weights + 6 * attention_width; }
};
Flops flops_per_token(const ModelConfig&, const ParamStore&, int64_t T);

struct Plan {
  int64_t total = 0, active = 0, padded = 0;                          // parameters; padded = with padding rows
  std::vector<std::pair<std::string, int64_t>> by_module;
  MemoryPlan memory;
  int64_t available_bytes = 0;
  Flops flops;
  int64_t flops_llmc = 0;                                             // llm.c's formula: 6 x all parameters + 6 L C T
  int64_t tokens = 0, steps = 0;
  std::optional<double> seconds_estimate;
};

std::vector<PassSize> training_passes(const RunConfig&);              // every geometry a run uses
Plan make_plan(const RunConfig&);
double estimate_seconds(const RunConfig&, const Plan&);               // measures a cut-down model for a moment
std::string to_table(const Plan&, const RunConfig&);
std::string to_json(const Plan&);

}  // namespace wyvern
