#include "trainer/interop/hf_config.h"

#include <filesystem>

#include "data/files.h"
#include "trainer/interop/hf_keys.h"
#include "trainer/interop/hf_rope.h"
#include "trainer/interop/strict_json.h"

namespace wyvern {
namespace {

constexpr double kMaxDropout = 0.99;
constexpr const char* kFamilies = "gpt2, llama, mistral, qwen2 and qwen3 are read";

// Keys of any family that the logits and their gradients do not depend on.
void skip_inert(HfKeys& keys) {
  keys.inert({"_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache", "task_specific_params",
              "tokenizer_class", "pretraining_tp", "output_attentions", "output_hidden_states", "return_dict", "gradient_checkpointing",
              "chunk_size_feed_forward", "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "torchscript",
              "use_bfloat16", "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task", "is_llama_config",
              "transformers.js_config", "max_sequence_length", "output_past", "predict_special_tokens", "n_special"});
  keys.inert_matching("", "_token_id");
  keys.inert_matching("summary_", "");
}

HfConfig read_gpt2(HfKeys& keys) {
  HfConfig c;
  c.gpt2 = true;
  c.vocab_size = keys.integer("vocab_size");
  c.context = keys.integer("n_positions");
  keys.only("n_ctx", c.context);
  c.channels = keys.integer("n_embd");
  c.layers = keys.integer("n_layer");
  c.heads = c.kv_heads = keys.integer("n_head");
  if (c.channels % c.heads) keys.refuse("n_head", fmt::format("does not divide n_embd = {}", c.channels));
  c.head_dim = c.channels / c.heads;
  c.hidden = keys.integer("n_inner", 4 * c.channels);
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.tied = keys.boolean("tie_word_embeddings", true);
  c.norm_eps = keys.number("layer_norm_epsilon", 1e-5, 1e-30, 1);
  c.embedding_dropout = keys.number("embd_pdrop", 0.1, 0, kMaxDropout);
  c.residual_dropout = keys.number("resid_pdrop", 0.1, 0, kMaxDropout);
  c.attention_dropout = keys.number("attn_pdrop", 0.1, 0, kMaxDropout);
  c.scaled_scores = keys.boolean("scale_attn_weights", true);
  const std::string activation = keys.text("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") c.activation = "gelu_tanh";
  else if (activation == "gelu") c.activation = "gelu_erf";
  else keys.refuse("activation_function", "gelu_new, gelu_pytorch_tanh and gelu are read");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) keys.only(key, false);
  c.windows.assign(size_t(c.layers), 0);
  return c;
}

// Qwen: a window only with use_sliding_window; then on the layers that layer_types names, by default those from max_window_layers on.
std::vector<int64_t> read_qwen_windows(HfKeys& keys, int64_t layers) {
  const bool used = keys.boolean("use_sliding_window", false);
  const bool none = keys.present("sliding_window") && !keys.has("sliding_window");      // null; absent means 4096
  const int64_t given = keys.integer("sliding_window", 4096), window = used && !none ? given : 0;
  const int64_t first = keys.integer("max_window_layers", 28, 0);
  std::vector<int64_t> windows(size_t(layers), 0);
  if (!keys.has("layer_types")) {
    for (int64_t l = first; l < layers; l++) windows[size_t(l)] = window;
    return windows;
  }
  const std::vector<std::string> types = keys.texts("layer_types");
  if (int64_t(types.size()) != layers)
    keys.refuse("layer_types", fmt::format("{} entries for num_hidden_layers = {}", types.size(), layers));
  for (size_t l = 0; l < types.size(); l++) {
    if (types[l] == "full_attention") continue;
    if (types[l] != "sliding_attention") keys.refuse("layer_types", "full_attention and sliding_attention are read");
    if (window == 0) keys.refuse("layer_types", "asks for sliding_attention, but use_sliding_window and sliding_window give no window");
    windows[l] = window;
  }
  return windows;
}

std::vector<int64_t> read_windows(HfKeys& keys, const std::string& family, int64_t layers) {
  if (family == "qwen2" || family == "qwen3") return read_qwen_windows(keys, layers);
  int64_t window = 0;
  if (family == "mistral") {                              // every layer; null = none, absent = 4096
    const int64_t given = keys.integer("sliding_window", 4096);
    window = keys.present("sliding_window") && !keys.has("sliding_window") ? 0 : given;
  }
  return std::vector<int64_t>(size_t(layers), window);
}

// Biases by family: llama and qwen3 by attention_bias (all four projections), qwen2 always on q, k and v, mistral never.
void read_biases(HfKeys& keys, const std::string& family, HfConfig& c) {
  if (family == "llama" || family == "qwen3") c.qkv_bias = c.output_bias = keys.boolean("attention_bias", false);
  if (family == "qwen2") c.qkv_bias = true;
  if (family == "mistral") keys.only("attention_bias", false);
  if (family == "llama") c.mlp_bias = keys.boolean("mlp_bias", false);
  else keys.only("mlp_bias", false);
}

HfConfig read_llama_like(HfKeys& keys, const std::string& family) {
  HfConfig c;
  c.vocab_size = keys.integer("vocab_size");
  c.context = keys.integer("max_position_embeddings");
  c.channels = keys.integer("hidden_size");
  c.layers = keys.integer("num_hidden_layers");
  c.heads = keys.integer("num_attention_heads");
  // Llama 1 has no such key; elsewhere the default of transformers is a fixed number that nobody should rely on. Null = heads.
  if (family != "llama" && !keys.present("num_key_value_heads")) keys.refuse("num_key_value_heads", "is needed");
  c.kv_heads = keys.integer("num_key_value_heads", c.heads);
  c.head_dim = keys.integer("head_dim", family == "qwen3" ? 128 : std::max<int64_t>(1, c.channels / c.heads));
  c.hidden = keys.integer("intermediate_size");
  c.tied = keys.boolean("tie_word_embeddings", false);
  c.norm_eps = keys.number("rms_norm_eps", 1e-6, 1e-30, 1);
  c.attention_dropout = keys.number("attention_dropout", 0, 0, kMaxDropout);
  c.activation = keys.text("hidden_act", "silu");
  if (c.activation == "swish") c.activation = "silu";      // the same function
  if (c.activation != "silu") keys.refuse("hidden_act", "only silu is read: the gate of SwiGLU");
  c.qk_norm = family == "qwen3";
  read_biases(keys, family, c);
  c.windows = read_windows(keys, family, c.layers);
  c.rope = read_hf_rope(keys, c.context);
  keys.only("partial_rotary_factor", 1.0);
  keys.only("rope_interleaved", false);
  keys.only("use_mrope", false);
  return c;
}

std::string rope_yaml(const RopeConfig& r) {
  const auto with = [&](const std::string& scaling) { return fmt::format("{{base: {}, scaling: {}}}", r.base, scaling); };
  switch (r.scaling) {
    case RopeConfig::none: return with("none");
    case RopeConfig::linear: return with(fmt::format("{{kind: linear, factor: {}}}", r.factor));
    case RopeConfig::ntk: return with(fmt::format("{{kind: ntk, factor: {}}}", r.factor));
    case RopeConfig::llama3:
      return with(fmt::format("{{kind: llama3, factor: {}, low_freq_factor: {}, high_freq_factor: {}, original_context: {}}}", r.factor,
                              r.low_freq_factor, r.high_freq_factor, r.original_context));
    case RopeConfig::yarn:
      return with(fmt::format("{{kind: yarn, factor: {}, beta_fast: {}, beta_slow: {}, magnitude: {}, truncate: {}, original_context: {}}}",
                              r.factor, r.beta_fast, r.beta_slow, r.magnitude ? fmt::format("{}", *r.magnitude) : "none", r.truncate,
                              r.original_context));
  }
  return "none";
}

std::string layer_yaml(const HfConfig& c, int64_t window) {
  const char* bias = c.output_bias ? "true" : c.qkv_bias ? "qkv" : "false";
  std::string out = fmt::format(
      "        - attention: {{kind: gqa, heads: {}, kv_heads: {}, head_dim: {}, bias: {}, qk_norm: {}, rope: {}, window: {}, "
      "scale: {}, dropout: {}}}\n",
      c.heads, c.kv_heads, c.head_dim, bias, c.qk_norm ? "head" : "none", c.rope ? rope_yaml(*c.rope) : "none",
      window ? fmt::format("{}", window) : "none", c.scaled_scores ? "none" : "1", c.attention_dropout);
  if (c.gpt2)
    out += fmt::format("          ffn: {{kind: mlp, hidden: {}, activation: {}, bias: {}}}\n", c.hidden, c.activation, c.mlp_bias);
  else
    out += fmt::format("          ffn: {{kind: swiglu, hidden: {}, bias: {}}}\n", c.hidden, c.mlp_bias);
  return out;
}

std::string layers_yaml(const HfConfig& c) {      // one group per run of layers with the same window
  std::string out = "  layers:\n";
  for (size_t begin = 0, end = 0; begin < c.windows.size(); begin = end) {
    while (end < c.windows.size() && c.windows[end] == c.windows[begin]) end++;
    out += fmt::format("    - times: {}\n      pattern:\n{}", end - begin, layer_yaml(c, c.windows[begin]));
  }
  return out;
}

// The folder's own name, reduced to what is safe in a file name and in YAML.
std::string run_name(const std::string& folder) {
  std::string name = std::filesystem::weakly_canonical(folder).filename().string();
  for (char& ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch)) && ch != '-' && ch != '_' && ch != '.') ch = '-';
  return name.empty() ? "imported" : name;
}

}  // namespace

HfConfig read_hf_config(const std::string& folder) {
  const std::string file = folder + "/config.json";
  HfKeys keys(parse_json(read_file(file), file, kUsage), file);
  const std::string family = keys.text("model_type");
  const bool llama_like = family == "llama" || family == "mistral" || family == "qwen2" || family == "qwen3";
  if (family != "gpt2" && !llama_like) keys.refuse("model_type", kFamilies);
  HfConfig c = llama_like ? read_llama_like(keys, family) : read_gpt2(keys);
  c.init_std = keys.number("initializer_range", 0.02, 0, 100);
  c.file = file;
  c.model_type = family;
  skip_inert(keys);
  keys.finish();
  return c;
}

std::string hf_to_yaml(const std::string& folder) {
  const HfConfig c = read_hf_config(folder);
  std::string out = fmt::format("name: \"{}\"\nmodel:\n", run_name(folder));
  out += fmt::format("  vocab_size: {}\n  padded_vocab: {}\n", c.vocab_size, (c.vocab_size + 63) / 64 * 64);
  out += fmt::format("  context: {}\n  channels: {}\n", c.context, c.channels);
  out += fmt::format("  embedding: {{positions: {}, dropout: {}}}\n", c.gpt2 ? "learned" : "none", c.embedding_dropout);
  out += fmt::format("  norm: {{kind: {}, eps: {}, place: pre}}\n", c.gpt2 ? "layernorm" : "rmsnorm", c.norm_eps);
  out += fmt::format("  residual: {{kind: sum, dropout: {}}}\n", c.residual_dropout);
  out += fmt::format("  head: {{tied: {}, softcap: none}}\n", c.tied);
  // transformers scales the output projections of GPT-2 alone
  out += fmt::format("  init: {{std: {}, residual_scale: {}}}\n", c.init_std, c.gpt2);
  return out + layers_yaml(c);
}

}  // namespace wyvern
