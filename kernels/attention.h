// Softmax attention over packed rows, causal, grouped queries; never a T x T matrix in memory.
//   s_ij = scale * q_i . k_j;  s = cap * tanh(s / cap) if cap > 0;  allowed iff j in the same document, j <= i, i - j < window
//   out_i = sum_j softmax_j(s_ij) * keep_ij * v_j,   lse_i = log sum_j exp(s_ij)          (arXiv 2205.14135, 2307.08691)
// Row n = b * T + t; query head h reads key/value head h / (H / Hkv). Documents never cross a sequence.
// Attention dropout: keep_ij = 0 or 1 / (1 - p), from (key; global sequence, global head, i, j).
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct AttentionShape {
  int64_t H = 0, Hkv = 0, D = 0;   // heads, key/value heads, channels of a head
  int64_t T = 0;                   // sequence length: rows per sequence
  double scale = 0;                // 1 / sqrt(D) unless the model says otherwise
  int64_t window = 0;              // 0 = none; w: a token sees itself and the w - 1 before it
  double softcap = 0;              // 0 = none
  double dropout = 0;              // probability
  uint64_t key = 0;                // dropout's Philox key
  int64_t first_sequence = 0;      // global index of row 0's sequence
  int64_t first_head = 0;          // global index of local head 0
};
struct AttentionForward {
  Tensor out;                      // (N, H * D)  written
  Tensor lse;                      // (N, H)      acc_t, written
  Columns q, k, v;                 // (N, W): H, Hkv, Hkv heads
  Tensor doc_starts;               // (docs + 1)  i32 row offsets, sequence starts included
  AttentionShape shape;
};
struct AttentionBackward {
  Columns dq, dk, dv;              // their columns written
  Tensor dout;                     // (N, H * D)
  Tensor out, lse;
  Columns q, k, v;
  Tensor doc_starts;
  AttentionShape shape;
};
// The T new rows of each of B sequences against a cache with a length per sequence: appends k, v, then attends.
// position 0 clears that sequence's cache. Dropout is off.
struct AttentionDecode {
  Tensor out;                      // (B * T, H * D)  written
  Tensor k_cache, v_cache;         // (B, capacity, Hkv * D)  updated
  Tensor length;                   // (B)         i32, updated
  Columns q, k, v;                 // (B * T, W)
  Tensor positions;                // (B * T)     i32
  AttentionShape shape;
};

void attention_forward(Stream&, const AttentionForward&);
void attention_backward(Stream&, const AttentionBackward&);
void attention_decode(Stream&, const AttentionDecode&);
namespace cpu {
void attention_forward(Stream&, const AttentionForward&);
void attention_backward(Stream&, const AttentionBackward&);
void attention_decode(Stream&, const AttentionDecode&);
int64_t attention_workspace(const AttentionShape&, DType, bool backward);      // bytes kept between calls
}
}  // namespace wyvern
