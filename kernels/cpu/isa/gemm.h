// GEMM micro-kernels behind kernels/cpu/linear.cpp. C (M, N) row-major with leading dimension ldc, always.
//   A element (m, k) = transpose_a ? a[k * lda + m] : a[m * lda + k];   B element (k, n) = transpose_b ? b[n * ldb + k] : b[k * ldb + n]
// so y = x w^T is (x, w, transpose_b), dx = dy w is (dy, w) and dw += dy^T x is (dy, transpose_a, x).
// One call opens its own OpenMP region and returns when C is complete. Any M, N, K >= 0; any alignment.
// The sum over k has a fixed order that does not depend on the number of threads.
#pragma once
#include <cstdint>

namespace wyvern::isa {

struct Gemm {
  int64_t M, N, K;
  const void* a; int64_t lda; bool transpose_a;
  const void* b; int64_t ldb; bool transpose_b;
  void* c; int64_t ldc;
  const void* bias = nullptr;      // (N), element type of a; added to every row; not together with accumulate
  bool accumulate = false;         // C += instead of C =
};

void gemm_f32(const Gemm&);                // a, b, c f32           (avx2 and avx512 tiers)
void gemm_bf16(const Gemm&);               // a, b bf16, c bf16, f32 sums   (amx natively; avx2 and avx512 by widening to f32)
void gemm_bf16_f32(const Gemm&);           // a, b bf16, c f32      (weight gradients, and the head's logits)

// Bytes of packed operands that the call keeps (for f32, or bf16 inputs).
int64_t gemm_workspace(const Gemm&, bool bf16_in);

}  // namespace wyvern::isa
