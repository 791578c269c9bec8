#include "model/layers/norm.h"

#include "kernels/norm.h"

namespace wyvern {

void NormSlot::forward(Context& c, Tensor out, Tensor x, Tensor a, Tensor b_add) {
  const DType acc = acc_of(x.dtype);
  rstd = c.saved.alloc(acc, {x.dim[0], 1}, "norm.rstd");
  mean = config.kind == NormConfig::layernorm ? c.saved.alloc(acc, {x.dim[0], 1}, "norm.mean") : Tensor{};
  norm_forward(c.stream, {.out = out, .rstd = rstd, .mean = mean, .x = x, .a = a, .b_add = b_add, .w = w->value,
                          .b = b ? b->value : Tensor{}, .eps = config.eps});
}

void NormSlot::backward(Context& c, Tensor dx, Tensor dout, Tensor x, bool add_dx) const {
  norm_backward(c.stream, {.dx = dx, .dw = w->grad, .db = b ? b->grad : Tensor{}, .dout = dout, .x = x, .rstd = rstd, .mean = mean,
                           .w = w->value, .add_dx = add_dx});
}

NormSlot make_norm(ParamStore& params, Stream& s, const std::string& name, int64_t channels, const NormConfig& config) {
  NormSlot slot;
  slot.config = config;
  slot.w =
      &params.add(s, {.name = name + ".weight", .shape = {channels}, .place = replicated(), .role = Role::vector, .init = init_ones()});
  if (config.kind == NormConfig::layernorm && config.bias)
    slot.b =
        &params.add(s, {.name = name + ".bias", .shape = {channels}, .place = replicated(), .role = Role::vector, .init = init_zeros()});
  return slot;
}

}  // namespace wyvern
