// A run's whole config as plain structs, read from one strict YAML tree.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "model/model_config.h"
#include "optim/optimizer.h"

namespace wyvern {

struct DataConfig {
  std::string train, val;              // shard patterns; empty with `synthetic`
  std::string tokenizer;               // name, file or folder; empty = none
  DataOrder order = DataOrder::shuffled;
  std::string synthetic;               // kind, or empty
};

struct TrainConfig {
  int64_t steps = 0, sequence = 0, batch = 0, micro_batch = 0;     // batch: sequences per step over all ranks
  int64_t log_every = 1;
  int64_t validate_every = 0, validate_batches = 0;                // 0 = never / the whole split
  int64_t sample_every = 0, sample_tokens = 64;
  std::string sample_prompt;
  int64_t checkpoint_every = 0, checkpoint_keep = 3, checkpoint_milestone = 0;
  double time_limit = 0;                                           // seconds; 0 = none
  double skip_zscore = 0;                                          // 0 = never skip an update
  int threads = 0;                                                 // 0 = as many as the process may use
};

struct RunConfig {
  std::string name;
  uint64_t seed = 0;
  DType compute = DType::f32;
  ModelConfig model;
  OptimConfig optim;
  DataConfig data;
  TrainConfig train;
  std::string run_dir;                                             // parent folder of the run folder

  static RunConfig from(const Node& root);                         // errors are collected in the tree
};

DType parse_compute(const std::string&);                           // f64 | f32 | bf16

}  // namespace wyvern
