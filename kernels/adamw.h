// AdamW (arXiv 1711.05101), decoupled decay, bias correction, step t counted from 1:
//   g = grad * grad_scale;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p = p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
// p is the master (acc_t); `value`, when it is another tensor, gets p rounded to the compute dtype.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct AdamW {
  Tensor value;        // (n) compute dtype, written
  Tensor p;            // (n) acc_t master, updated; may be value itself
  Tensor m, v;         // (n) acc_t, updated
  Tensor grad;         // (n) acc_t
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  int64_t t;
};

void adamw(Stream&, const AdamW&);
namespace cpu { void adamw(Stream&, const AdamW&); }
}  // namespace wyvern
