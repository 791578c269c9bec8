// y = x w^T + b.   N rows (tokens), I inputs, O outputs; weights are [out, in]. Sums in acc_t.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct LinearForward {
  Tensor y;      // (N, O)  written
  Tensor x;      // (N, I)
  Tensor w;      // (O, I)  same dtype as x
  Tensor b;      // (O)     or absent
};
struct LinearBackward {
  Tensor dx;     // (N, I)  written; absent when nobody needs it
  Tensor dw;     // (O, I)  acc_t, accumulated
  Tensor db;     // (O)     acc_t, accumulated; absent without bias
  Tensor dy;     // (N, O)
  Tensor x, w;
};

void linear_forward(Stream&, const LinearForward&);
void linear_backward(Stream&, const LinearBackward&);
namespace cpu {
void linear_forward(Stream&, const LinearForward&);
void linear_backward(Stream&, const LinearBackward&);
int64_t workspace(const LinearForward&);         // bytes kept between calls
int64_t workspace(const LinearBackward&);
}
}  // namespace wyvern
