// Rotary position embedding (arXiv 2104.09864), half-split layout: channel i pairs with i + D/2, turned by
// angle = position * inv_freq[i]; angles in f64, cos and sin rounded to acc_t. Scaling rules only change inv_freq and
// `magnitude` (model/attention/rope_scaling). In place: out.matrix may be x.matrix. Backward is the turn by -angle.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct Rope {
  Columns out;          // (N, W)  groups * D columns at offset, written
  Columns x;            // (N, W)
  Tensor positions;     // (N)     i32
  const double* inv_freq = nullptr;   // D / 2 values, host memory
  double magnitude = 1; // multiplies cos and sin (YaRN)
  int64_t groups = 1, D = 0;
  bool backward = false;
};

void rope(Stream&, const Rope&);
namespace cpu { void rope(Stream&, const Rope&); }
}  // namespace wyvern
