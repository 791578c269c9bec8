// config.json of a Hugging Face folder as a Wyvern model: gpt2, llama, mistral, qwen2 and qwen3, in the spelling of published
// checkpoints (rope_theta, rope_scaling, torch_dtype) and in that of transformers 5 (rope_parameters, dtype).
// What changes the model is translated or refused by name (Error kUsage: key, value, file); a key that is not known is refused too.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/attention/rope_scaling.h"

namespace wyvern {

struct HfConfig {
  std::string file, model_type;
  int64_t vocab_size = 0, context = 0, channels = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, hidden = 0;
  bool gpt2 = false;                        // layernorm with bias, learned positions, MLP without gate; else RMSNorm, rope, SwiGLU
  bool tied = false;                        // the head is the embedding
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;                     // RMSNorm of every q and k head
  bool scaled_scores = true;                // scores times 1 / sqrt(head_dim)
  std::string activation;                   // gelu_tanh | gelu_erf of an MLP; silu gates a SwiGLU
  double norm_eps = 0, init_std = 0;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
  std::optional<RopeConfig> rope;
  std::vector<int64_t> windows;             // per layer: a token sees itself and the window - 1 before it; 0 = all
};

HfConfig read_hf_config(const std::string& folder);

// The complete `name:` and `model:` of a Wyvern config, as ModelConfig::from reads it.
std::string hf_to_yaml(const std::string& folder);

}  // namespace wyvern
