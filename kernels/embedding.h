// x[n] = (add ? x[n] : 0) + w[index[n] - first_row], or 0 where that row is not here (vocab-parallel).
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct EmbeddingForward {
  Tensor x;          // (N, C)  written, or added to
  Tensor w;          // (R, C)
  Tensor index;      // (N)     i32: tokens or positions
  int64_t first_row = 0;
  bool add = false;
};
struct EmbeddingBackward {
  Tensor dw;         // (R, C)  acc_t, accumulated, in row order: deterministic
  Tensor dx;         // (N, C)
  Tensor index;
  int64_t first_row = 0;
};

void embedding_forward(Stream&, const EmbeddingForward&);
void embedding_backward(Stream&, const EmbeddingBackward&);
namespace cpu {
void embedding_forward(Stream&, const EmbeddingForward&);
void embedding_backward(Stream&, const EmbeddingBackward&);
}
}  // namespace wyvern
