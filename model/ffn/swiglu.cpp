// SwiGLU: x -> gate|up -> up * silu(gate) -> down.
#include "kernels/activation.h"
#include "model/layers/linear.h"

namespace wyvern {
namespace {

struct SwigluMlp {
  Linear gate_up, down;        // gate_up: blocks gate|up, one product

  struct Saved {
    Linear::Saved gate_up, down;
    Tensor pre;                // (N, 2F)
  };
  void forward(Context& c, Saved& s, Tensor y, Tensor x) const {
    const int64_t N = x.dim[0], F2 = gate_up.outputs();
    s.pre = c.saved.alloc(x.dtype, {N, F2}, "swiglu.pre");
    Tensor act = c.saved.alloc(x.dtype, {N, F2 / 2}, "swiglu.act");
    gate_up.forward(c, s.gate_up, s.pre, x);
    swiglu_forward(c.stream, {.y = act, .x = s.pre});
    down.forward(c, s.down, y, act);
  }
  void backward(Context& c, const Saved& s, Tensor dx, Tensor dy) const {
    Arena::Scope scope(c.scratch);
    const int64_t N = dx.dim[0], F2 = gate_up.outputs();
    Tensor dact = c.scratch.alloc(dx.dtype, {N, F2 / 2}, "swiglu.dact");
    Tensor dpre = c.scratch.alloc(dx.dtype, {N, F2}, "swiglu.dpre");
    down.backward(c, s.down, dact, dy);
    swiglu_backward(c.stream, {.dx = dpre, .dy = dact, .x = s.pre});
    gate_up.backward(c, s.gate_up, dx, dpre);
  }
};

}  // namespace

std::unique_ptr<Branch> make_swiglu(LayerSpec& spec) {
  const Node& n = spec.config;
  const int64_t F = n.integer("hidden", {}, {1, int64_t(1) << 24}, "width of the hidden layer");
  const bool bias = n.boolean("bias", false, "biases on all projections");
  SwigluMlp m;
  m.gate_up = column_linear(spec, "gate_up", spec.channels, 2 * F, bias, {F, F});
  m.down = row_linear(spec, "down", F, spec.channels, bias);
  return branch(std::move(m));
}

}  // namespace wyvern
