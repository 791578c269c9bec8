// The `model:` map of a config as a plain struct. Layer kinds read their own maps when the model is built.
#pragma once
#include <string>
#include <vector>

#include "configs/node.h"
#include "model/layers/norm.h"

namespace wyvern {

enum class NormPlace : uint8_t { pre, post, both, none };

struct LayerConfig {                 // one layer: two sublayers, each over the residual stream
  Node attention, ffn;
};

struct ModelConfig {
  int64_t vocab_size = 0, padded_vocab = 0, context = 0, channels = 0;
  bool learned_positions = true;
  double embedding_dropout = 0, residual_dropout = 0;
  NormConfig norm;
  NormPlace norm_place = NormPlace::pre;
  bool tied = true;
  double softcap = 0;                // on the logits; 0 = none
  double init_std = 0.02;
  bool residual_scale = true;        // std / sqrt(2 * layers) for what writes to the residual stream
  int64_t recompute_every = 0;       // 0 = none, 1 = all, n = layers 0, n, 2n, ...
  std::vector<LayerConfig> layers;   // `times` unrolled

  static ModelConfig from(const Node& model);
  double output_std() const;
};

NormPlace read_norm_place(const Node&, std::string_view key, const char* otherwise);

}  // namespace wyvern
