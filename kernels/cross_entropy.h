// Cross-entropy over a vocabulary that may be cut over ranks, in two ops per chunk of n tokens.
//   stats:    per row (max, sum exp(z - max), target logit) of the local columns
//   gradient: folds the ranks' stats; loss_n = log sum exp - z_target; logits become (softmax - onehot) * scale in place
// z = cap * tanh(logit / cap) if cap > 0. Columns >= vocab (padding) take no part: probability and gradient 0.
// Rows with a negative target are ignored: loss 0, gradient 0.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct CrossEntropyStats {
  Tensor stats;            // (n, 3)   acc_t, written
  Tensor logits;           // (n, V)   local columns; with a cap, replaced by z
  Tensor targets;          // (n)      i32, global ids
  int64_t vocab = 0;       // global vocabulary size without padding
  int64_t first_column = 0;
  double softcap = 0;
};
struct CrossEntropyGradient {
  Tensor logits;           // (n, V)   in: z; out: dlogits. Left alone when write_gradient is false
  Tensor token_loss;       // (n)      acc_t, written (unscaled)
  Tensor all_stats;        // (ranks * n, 3) acc_t
  Tensor targets;
  int64_t vocab = 0, first_column = 0;
  double scale = 1;        // Batch::loss_scale
  double softcap = 0;
  bool write_gradient = true;
};

void cross_entropy_stats(Stream&, const CrossEntropyStats&);
void cross_entropy_gradient(Stream&, const CrossEntropyGradient&);
namespace cpu {
void cross_entropy_stats(Stream&, const CrossEntropyStats&);
void cross_entropy_gradient(Stream&, const CrossEntropyGradient&);
}
}  // namespace wyvern
