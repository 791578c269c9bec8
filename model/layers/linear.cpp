#include "model/layers/linear.h"

#include "kernels/linear.h"

namespace wyvern {

void Linear::forward(Context& c, Saved& s, Tensor y, Tensor x) const {
  s.x = x;
  const bool add_bias = b && (!row || c.mesh.tp->rank() == 0);
  linear_forward(c.stream, {.y = y, .x = x, .w = w->value, .b = add_bias ? b->value : Tensor{}});
}

void Linear::backward(Context& c, const Saved& s, Tensor dx, Tensor dy) const {
  linear_backward(c.stream, {.dx = dx, .dw = w->grad, .db = b ? b->grad : Tensor{}, .dy = dy, .x = s.x, .w = w->value});
}

Linear column_linear(const LayerSpec& s, const std::string& name, int64_t in, int64_t out, bool bias, std::vector<int64_t> blocks) {
  Linear l;
  l.w = &s.add({.name = name + ".weight",
                .shape = {out, in},
                .place = shard(0),
                .role = Role::matrix,
                .init = init_normal(s.init_std),
                .blocks = blocks});
  if (bias)
    l.b = &s.add({.name = name + ".bias", .shape = {out}, .place = shard(0), .role = Role::vector, .init = init_zeros(), .blocks = blocks});
  return l;
}

Linear row_linear(const LayerSpec& s, const std::string& name, int64_t in, int64_t out, bool bias) {
  Linear l;
  l.row = true;
  l.w = &s.add({.name = name + ".weight", .shape = {out, in}, .place = shard(1), .role = Role::matrix, .init = init_normal(s.output_std)});
  if (bias) l.b = &s.add({.name = name + ".bias", .shape = {out}, .place = replicated(), .role = Role::vector, .init = init_zeros()});
  return l;
}

}  // namespace wyvern
