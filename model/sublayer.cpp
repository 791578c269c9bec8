#include "model/sublayer.h"

#include "kernels/elementwise.h"

namespace wyvern {
namespace {

Context keyed(const Context& c, int sublayer) {        // the branch draws from its own key
  Context k = c;
  k.rng.sublayer = sublayer;
  return k;
}
Dropout mask(const Context& c, Tensor y, Tensor x, double p) {
  return {.y = y, .x = x, .p = p, .key = c.rng.key(Purpose::residual), .T = c.batch.T, .first_sequence = c.batch.first_sequence};
}

}  // namespace

void Sublayer::run(Context& c, Residual& r, Tensor y, Cache* cache) {
  Tensor n = c.saved.alloc(y.dtype, shape_of(y), "sublayer.n");
  z_ = post ? c.saved.alloc(y.dtype, shape_of(y), "sublayer.z") : y;
  r.read(c, index, pre_slot(), n);
  if (cache) branch->decode(c, *cache, z_, n);
  else branch->forward(c, z_, n);
  c.mesh.tp->all_reduce(c.stream, z_);
  if (post) post->forward(c, y, z_);
  if (dropout > 0 && c.mode == Mode::train) wyvern::dropout(c.stream, mask(c, y, y, dropout));
}

void Sublayer::forward(Context& ctx, Residual& r, Cache* cache) {
  Context c = keyed(ctx, index);
  mark_ = c.saved.mark();
  Tensor y = r.output(c, index);
  run(c, r, y, cache);
  if (recompute || c.mode != Mode::train) c.saved.rewind(mark_);
  r.write(c, index, y);
}

void Sublayer::backward(Context& ctx, Residual& r) {
  Context c = keyed(ctx, index);
  Arena::Scope scope(c.scratch);
  Tensor dy = r.write_backward(c, index), d = dy;
  Tensor dn = c.scratch.alloc(dy.dtype, shape_of(dy), "sublayer.dn");
  if (recompute) run(c, r, dn, nullptr);                // y again, into a place that is free until dn is written
  if (dropout > 0) {
    d = c.scratch.alloc(dy.dtype, shape_of(dy), "sublayer.ddrop");
    wyvern::dropout(c.stream, mask(c, d, dy, dropout));
  }
  if (post) {
    Tensor dz = c.scratch.alloc(dy.dtype, shape_of(dy), "sublayer.dz");
    post->backward(c, dz, d, z_, false);
    d = dz;
  }
  branch->backward(c, dn, d);
  c.mesh.tp->all_reduce(c.stream, dn);
  r.read_backward(c, index, pre_slot(), dn);
  c.saved.rewind(mark_);
}

}  // namespace wyvern
