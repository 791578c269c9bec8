// NormSlot: a norm's parameters plus the statistics its last forward left. A sublayer has a pre- and a post-norm slot, the
// head has one; the residual applies the pre-norm itself, so that adding and norming are one pass.
#pragma once
#include "model/layer.h"

namespace wyvern {

struct NormConfig {
  enum Kind : uint8_t { layernorm, rmsnorm } kind = layernorm;
  double eps = 1e-5;
  bool bias = true;            // layernorm only
};

struct NormSlot {
  NormConfig config;
  Param* w = nullptr;
  Param* b = nullptr;
  Tensor rstd, mean;           // (N, 1)

  // out = norm(x); with a and b_add present x = a + b_add is written first.
  void forward(Context&, Tensor out, Tensor x, Tensor a = {}, Tensor b_add = {});
  void backward(Context&, Tensor dx, Tensor dout, Tensor x, bool add_dx) const;      // dx written, or added to
};

NormSlot make_norm(ParamStore&, Stream&, const std::string& name, int64_t channels, const NormConfig&);

}  // namespace wyvern
