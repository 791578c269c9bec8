// LayerNorm (mean present) or RMSNorm (mean absent) of G groups of D channels starting at column `offset` of rows of W:
//   rms:   out = w * x * r,               r = 1 / sqrt(mean(x^2) + eps)            (arXiv 1910.07467)
//   layer: out = w * (x - m) * r + b,     r = 1 / sqrt(var(x) + eps), biased var   (arXiv 1607.06450)
// Only the G*D addressed columns are read and written, so q and k can be normed inside a fused qkv. x and out may have rows of
// different widths (W, Wo): the same columns of both are addressed.
// With `a` and `b_add` present, x = a + b_add is written first: the residual add and the norm are one pass.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct NormForward {
  Tensor out;            // (N, Wo) addressed columns written
  Tensor rstd;           // (N, G)  acc_t, written
  Tensor mean;           // (N, G)  acc_t, written; present = LayerNorm
  Tensor x;              // (N, W)  written when a, b_add are present
  Tensor a, b_add;       // (N, W)  both or neither
  Tensor w;              // (D)     compute dtype or acc_t; absent = no weight
  Tensor b;              // (D)     absent = no bias
  double eps = 1e-5;
  int64_t groups = 1, D = 0, offset = 0;
};
struct NormBackward {
  Tensor dx;             // (N, W)  addressed columns written, or (add_dx) added to
  Tensor dw, db;         // (D)     acc_t, accumulated; absent with their parameters
  Tensor dout;           // (N, Wo)
  Tensor x;              // (N, W)
  Tensor rstd, mean;     // (N, G)  mean absent = RMSNorm
  Tensor w;
  int64_t groups = 1, D = 0, offset = 0;
  bool add_dx = false;   // the residual's gradient buffer has many readers: see model/residual
};

void norm_forward(Stream&, const NormForward&);
void norm_backward(Stream&, const NormBackward&);
namespace cpu {
void norm_forward(Stream&, const NormForward&);
void norm_backward(Stream&, const NormBackward&);
}
}  // namespace wyvern
