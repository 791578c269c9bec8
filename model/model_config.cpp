#include "model/model_config.h"

#include <cmath>

namespace wyvern {
namespace {

constexpr int64_t kMaxWidth = int64_t(1) << 24;

int64_t read_recompute(const Node& model) {
  const char* doc = "run the forward of these layers again in backward instead of keeping their activations: none, all, or {every: n}";
  if (model.has("recompute") && !model.is_text("recompute"))
    return model.map("recompute", doc).integer("every", {}, {1, 1 << 20}, "layers 0, n, 2n, ... recompute");
  return model.choice("recompute", {"none", "all"}, "none", doc) == "all" ? 1 : 0;
}

std::vector<LayerConfig> read_layers(const Node& model) {
  std::vector<LayerConfig> layers;
  for (const Node& group : model.list("layers", "groups of layers, read top to bottom")) {
    const int64_t times = group.integer("times", 1, {1, 4096}, "how often the pattern repeats");
    std::vector<LayerConfig> pattern;
    for (const Node& layer : group.list("pattern", "the layers of one repeat"))
      pattern.push_back({layer.map("attention", "the mixer across tokens"), layer.map("ffn", "the mixer within a token")});
    for (int64_t i = 0; i < times; i++) layers.insert(layers.end(), pattern.begin(), pattern.end());
  }
  return layers;
}

}  // namespace

NormPlace read_norm_place(const Node& n, std::string_view key, const char* otherwise) {
  const std::string s = n.choice(key, {"pre", "post", "both", "none"}, otherwise,
                                 "norm of the input (pre), of the output before the add (post), both or none");
  return s == "pre" ? NormPlace::pre : s == "post" ? NormPlace::post : s == "both" ? NormPlace::both : NormPlace::none;
}

ModelConfig ModelConfig::from(const Node& m) {
  ModelConfig c;
  c.vocab_size = m.integer("vocab_size", {}, {1, kMaxWidth}, "token ids the tokenizer can produce");
  c.padded_vocab = m.integer("padded_vocab", (c.vocab_size + 63) / 64 * 64, {1, kMaxWidth},
                             "rows of the embedding; rows beyond vocab_size never enter the loss or sampling");
  if (c.padded_vocab < c.vocab_size)
    m.error("padded_vocab", fmt::format("{} rows cannot hold a vocab_size of {}", c.padded_vocab, c.vocab_size));
  c.context = m.integer("context", {}, {1, int64_t(1) << 24}, "longest sequence, in tokens");
  c.channels = m.integer("channels", {}, {1, kMaxWidth}, "width of the residual stream");

  const Node e = m.map("embedding", "from token ids to the residual stream");
  c.learned_positions =
      e.choice("positions", {"learned", "none"}, "none", "a learned table, or none (rotary positions live in attention)") == "learned";
  c.embedding_dropout = e.number("dropout", 0, {0, 0.99}, "probability, in training");

  const Node n = m.map("norm", "the norm of every sublayer and of the head's input");
  c.norm.kind = n.choice("kind", {"layernorm", "rmsnorm"}, {}, "norm kind") == "rmsnorm" ? NormConfig::rmsnorm : NormConfig::layernorm;
  c.norm.eps = n.number("eps", 1e-5, {0, 1, true}, "added to the variance or mean square");
  c.norm.bias = c.norm.kind == NormConfig::layernorm && n.boolean("bias", true, "layernorm's bias");
  c.norm_place = read_norm_place(n, "place", "pre");

  const Node r = m.map("residual", "the mixer across depth");
  r.choice("kind", {"sum"}, "sum", "x + f(x)");
  c.residual_dropout = r.number("dropout", 0, {0, 0.99}, "probability, on every sublayer's output, in training");

  const Node h = m.map("head", "from the residual stream to logits");
  c.tied = h.boolean("tied", false, "the head is the token embedding");
  c.softcap = h.number_or_none("softcap", {}, {0, 1e9, true}, "logits z become cap tanh(z / cap)").value_or(0);

  const Node i = m.map("init", "initial values, drawn by (seed, name, index)");
  c.init_std = i.number("std", 0.02, {0, 100}, "of every matrix and embedding");
  c.residual_scale = i.boolean("residual_scale", true, "std / sqrt(2 layers) for what writes to the residual stream");

  c.recompute_every = read_recompute(m);
  c.layers = read_layers(m);
  return c;
}

double ModelConfig::output_std() const {
  return residual_scale && !layers.empty() ? init_std / std::sqrt(2.0 * double(layers.size())) : init_std;
}

}  // namespace wyvern
