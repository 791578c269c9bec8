// Feed-forward kinds without gate: x -> up -> GELU -> down.
#include "kernels/activation.h"
#include "model/layers/linear.h"

namespace wyvern {
namespace {

struct Mlp {
  Linear up, down;
  Gelu form = Gelu::tanh;

  struct Saved {
    Linear::Saved up, down;
    Tensor pre;            // (N, F)
  };
  void forward(Context& c, Saved& s, Tensor y, Tensor x) const {
    const int64_t N = x.dim[0], F = up.outputs();
    s.pre = c.saved.alloc(x.dtype, {N, F}, "mlp.pre");
    Tensor act = c.saved.alloc(x.dtype, {N, F}, "mlp.act");
    up.forward(c, s.up, s.pre, x);
    gelu_forward(c.stream, {.y = act, .x = s.pre, .form = form});
    down.forward(c, s.down, y, act);
  }
  void backward(Context& c, const Saved& s, Tensor dx, Tensor dy) const {
    Arena::Scope scope(c.scratch);
    Tensor d = c.scratch.alloc(dx.dtype, shape_of(s.pre), "mlp.dact");
    down.backward(c, s.down, d, dy);
    gelu_backward(c.stream, {.dx = d, .dy = d, .x = s.pre, .form = form});
    up.backward(c, s.up, dx, d);
  }
};

}  // namespace

std::unique_ptr<Branch> make_mlp(LayerSpec& spec) {
  const Node& n = spec.config;
  const int64_t F = n.integer("hidden", 4 * spec.channels, {1, int64_t(1) << 24}, "width of the hidden layer");
  const bool bias = n.boolean("bias", false, "biases on both projections");
  Mlp m;
  m.form =
      n.choice("activation", {"gelu_tanh", "gelu_erf"}, "gelu_tanh", "tanh form (GPT-2) or exact") == "gelu_erf" ? Gelu::erf : Gelu::tanh;
  m.up = column_linear(spec, "up", spec.channels, F, bias);
  m.down = row_linear(spec, "down", F, spec.channels, bias);
  return branch(std::move(m));
}

}  // namespace wyvern
