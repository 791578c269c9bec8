// THE CONTRACT of a layer kind. A layer is a struct of Param references and sizes; it holds no activations:
//   struct Saved;                                                what forward leaves for backward, memory from ctx.saved
//   void forward (Context&, Saved&, Tensor y, Tensor x) const    writes y. Saved may keep a view of x, never of y
//   void backward(Context&, const Saved&, Tensor dx, Tensor dy) const   writes dx, accumulates into Param::grad; dy is read-only
// A kind that remembers between tokens also has
//   struct Cache : wyvern::Cache; make_cache(Stream&, Arena&, DType, B, capacity) const; decode(Context&, Cache&, Tensor y, Tensor x) const
// and one that mixes tokens has mixing_flops(T) const.
// Decoding token by token equals forward: that is a test of every kind. forward runs twice when a sublayer recomputes, so only
// backward may touch a Buffer. On a tp axis x and dy come in replicated, y and dx leave as partial sums.
#pragma once
#include <memory>
#include <string>

#include "configs/node.h"
#include "model/context.h"
#include "parallel/params.h"

namespace wyvern {

struct Cache { virtual ~Cache() = default; };      // what a branch keeps between decode steps; owned by the generator

class Branch {                                     // what may hang on the residual stream: y = f(x), both (N, C)
 public:
  virtual ~Branch() = default;
  virtual void forward(Context&, Tensor y, Tensor x) = 0;
  virtual void backward(Context&, Tensor dx, Tensor dy) = 0;
  virtual std::unique_ptr<Cache> make_cache(Stream&, Arena&, DType, int64_t B, int64_t capacity) const = 0;   // cleared
  virtual void decode(Context&, Cache&, Tensor y, Tensor x) = 0;
  // FLOPs of one token's forward beyond its weights (2 per weight): what mixing tokens costs in a sequence of T.
  virtual int64_t mixing_flops(int64_t T) const = 0;
};

template <class L> class BranchOf final : public Branch {      // the layer is pure; the slot remembers
 public:
  explicit BranchOf(L layer) : layer_(std::move(layer)) {}
  void forward(Context& c, Tensor y, Tensor x) override {
    saved_ = {};
    layer_.forward(c, saved_, y, x);
  }
  void backward(Context& c, Tensor dx, Tensor dy) override { layer_.backward(c, saved_, dx, dy); }
  std::unique_ptr<Cache> make_cache(Stream& s, Arena& a, DType d, int64_t B, int64_t capacity) const override {
    if constexpr (requires { typename L::Cache; }) return layer_.make_cache(s, a, d, B, capacity);
    else return std::make_unique<Cache>();                     // a kind without memory decodes by its forward
  }
  void decode(Context& c, Cache& k, Tensor y, Tensor x) override {
    if constexpr (requires { typename L::Cache; }) layer_.decode(c, static_cast<typename L::Cache&>(k), y, x);
    else forward(c, y, x);
  }
  int64_t mixing_flops(int64_t T) const override {
    if constexpr (requires { layer_.mixing_flops(T); }) return layer_.mixing_flops(T);
    else return 0;
  }

 private:
  L layer_;
  typename L::Saved saved_;
};
template <class L> std::unique_ptr<Branch> branch(L layer) { return std::make_unique<BranchOf<L>>(std::move(layer)); }

struct LayerSpec {             // what a factory gets
  ParamStore& params;
  Stream& stream;
  Node config;                 // the kind's own map: `attention: {...}` or `ffn: {...}`
  std::string scope;           // "layers.3.attn"
  int64_t channels = 0;        // C
  double init_std = 0.02;      // of every matrix
  double output_std = 0.02;    // of what writes to the residual stream
  double norm_eps = 1e-5;      // the model's

  Param& add(ParamSpec p) const {
    p.name = scope + "." + p.name;
    return params.add(stream, std::move(p));
  }
};
using BranchFactory = std::unique_ptr<Branch> (*)(LayerSpec&);

}  // namespace wyvern
