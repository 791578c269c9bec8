#include "model/model.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "model/registry.h"

namespace wyvern {
namespace {

Sublayer make_sublayer(const ModelConfig& c, ParamStore& params, Stream& s, int index, int layer, const char* what, const Node& node,
                       BranchFactory make) {
  Sublayer u;
  u.index = index;
  u.name = fmt::format("layers.{}.{}", layer, what);
  u.dropout = c.residual_dropout;
  u.recompute = c.recompute_every > 0 && layer % c.recompute_every == 0;
  const char* names[] = {"pre", "post", "both", "none"};
  const NormPlace place = read_norm_place(node, "norm", names[int(c.norm_place)]);
  if (place == NormPlace::pre || place == NormPlace::both) u.pre = make_norm(params, s, u.name + ".norm", c.channels, c.norm);
  LayerSpec spec{.params = params, .stream = s, .config = node, .scope = u.name, .channels = c.channels,
                 .init_std = c.init_std, .output_std = c.output_std(), .norm_eps = c.norm.eps};
  u.branch = make(spec);
  if (place == NormPlace::post || place == NormPlace::both) u.post = make_norm(params, s, u.name + ".post_norm", c.channels, c.norm);
  return u;
}

}  // namespace

Model::Model(const ModelConfig& c, ParamStore& params, Stream& s) : config_(c), dtype_(params.dtype()) {
  embed_.dropout = c.embedding_dropout;
  embed_.tokens = &params.add(s, {.name = "embed.tokens.weight",
                                  .shape = {c.padded_vocab, c.channels},
                                  .place = shard(0),
                                  .role = Role::embedding,
                                  .init = init_normal(c.init_std),
                                  .padding = c.padded_vocab - c.vocab_size});
  if (c.learned_positions)
    embed_.positions = &params.add(s, {.name = "embed.positions.weight",
                                       .shape = {c.context, c.channels},
                                       .place = replicated(),
                                       .role = Role::embedding,
                                       .init = init_normal(c.init_std)});
  for (size_t l = 0; l < c.layers.size(); l++) {
    sublayers_.push_back(make_sublayer(c, params, s, sublayers(), int(l), "attn", c.layers[l].attention, make_attention));
    sublayers_.push_back(make_sublayer(c, params, s, sublayers(), int(l), "ffn", c.layers[l].ffn, make_ffn));
  }
  residual_ = make_sum_residual(sublayers());
  norm_ = make_norm(params, s, "final.norm", c.channels, c.norm);
  head_.w = c.tied ? embed_.tokens
                   : &params.add(s, {.name = "head.weight", .shape = {c.padded_vocab, c.channels}, .place = shard(0), .role = Role::head,
                                     .init = init_normal(c.init_std), .padding = c.padded_vocab - c.vocab_size});
  head_.vocab = c.vocab_size;
  head_.softcap = c.softcap;
}

// Embedding to the final norm; leaves h_.
void Model::hidden(Context& c, Caches* caches) {
  const Shape shape = {c.batch.N(), config_.channels};
  Tensor x0 = c.saved.alloc(dtype_, shape, "embed.x0");
  embed_.forward(c, x0);
  residual_->begin(c, x0);
  for (size_t i = 0; i < sublayers_.size(); i++) sublayers_[i].forward(c, *residual_, caches ? (*caches)[i].get() : nullptr);
  head_mark_ = c.saved.mark();
  h_ = c.saved.alloc(dtype_, shape, "head.h");
  residual_->read(c, sublayers(), &norm_, h_);
}

double Model::forward(Context& c) {
  hidden(c, nullptr);
  token_loss_ = c.saved.alloc(acc_of(dtype_), {c.batch.N()}, "head.token_loss");
  dh_ = c.mode == Mode::train ? c.saved.alloc(dtype_, {c.batch.N(), config_.channels}, "head.dh") : Tensor{};
  head_.loss(c, token_loss_, dh_, h_);
  double loss = 0;
  sum(c.stream, {.out = &loss, .x = token_loss_});
  return loss * c.batch.loss_scale;
}

void Model::backward(Context& c) {
  Arena::Scope scope(c.scratch);
  residual_->read_backward(c, sublayers(), &norm_, dh_);
  c.saved.rewind(head_mark_);
  for (size_t i = sublayers_.size(); i-- > 0;) sublayers_[i].backward(c, *residual_);
  embed_.backward(c, residual_->begin_backward(c));
}

void Model::logits(Context& c, Tensor out, Caches* caches) {
  hidden(c, caches);
  head_.logits(c, out, h_);
}

Model::Caches Model::make_caches(Stream& s, Arena& a, int64_t B, int64_t capacity) const {
  Caches caches;
  for (const Sublayer& u : sublayers_) caches.push_back(u.branch->make_cache(s, a, dtype_, B, capacity));
  return caches;
}

int64_t Model::mixing_flops(int64_t T) const {
  int64_t flops = 0;
  for (const Sublayer& u : sublayers_) flops += u.branch->mixing_flops(T);
  return flops;
}

Tensor Model::stream(int layer) const { return residual_->stream(2 * layer); }

}  // namespace wyvern
