// Sublayer: norms + branch + residual dropout + recompute + the two tp all-reduces. One `if` for recompute, for any kind.
#pragma once
#include <optional>

#include "model/residual/residual.h"

namespace wyvern {

struct Sublayer {
  int index = 0;
  std::string name;                    // "layers.3.attn"
  std::unique_ptr<Branch> branch;
  std::optional<NormSlot> pre, post;   // post: y = norm(f(x)) before it joins the stream
  double dropout = 0;
  bool recompute = false;

  void forward(Context&, Residual&, Cache* = nullptr);     // with a cache: decode
  void backward(Context&, Residual&);

 private:
  void run(Context&, Residual&, Tensor y, Cache*);
  NormSlot* pre_slot() { return pre ? &*pre : nullptr; }
  Tensor z_;                           // branch output before the post-norm
  int64_t mark_ = 0;                   // of ctx.saved
};

}  // namespace wyvern
