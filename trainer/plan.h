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
// + 3 x what mixing tokens costs in forward; for causal softmax attention that is 2 x heads x head_dim x min(T, window) per layer,
//   the half that is computed.
struct Flops {
  int64_t weights = 0;                 // that multiply
  int64_t mixing = 0;                  // forward, all layers
  int64_t total() const { return 6 * weights + 3 * mixing; }
};
Flops flops_per_token(const Model&, const ParamStore&, int64_t T);

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
