// Row kernels: the elementwise and row-wise inner loops of the CPU backend, written once (rows.inl) and compiled three
// times (plain, AVX2, AVX-512). rows<T>() is the table for the tier in force. T is the storage type, float or bf16; the
// arithmetic is f32. F64 models keep the plain loops of kernels/cpu.
//
//   const auto& row = isa::rows<T>();                        // once per op
//   #pragma omp parallel for schedule(static)
//   for (int64_t n = 0; n < N; n++) row.swiglu_forward(y + n * F, x + n * 2 * F, F);
//
// A call works on one row, or on any contiguous range, on the calling thread. No alignment is needed, n may be 0, nothing
// outside the n elements is touched. Outputs come first. "y may be x": exactly the same pointer, never a partial overlap.
// For one tier a result depends on the arguments alone. bf16 results are rounded to nearest even. NaN and infinity
// come out as NaN or infinity.
#pragma once
#include <cstdint>

#include "kernels/base/dtype.h"

namespace wyvern::isa {

// One AdamW step of kernels/adamw.h with everything that does not depend on the element worked out by the caller:
//   g = grad * grad_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p * decay - step * m / (sqrt(v) * root + eps)
struct AdamWFactors {
  float beta1, beta2;
  float rest1, rest2;              // 1 - beta, subtracted in double
  float decay;                     // 1 - lr * weight_decay
  float step;                      // lr / (1 - beta1^t)
  float root;                      // 1 / sqrt(1 - beta2^t)
  float eps, grad_scale;
};

// Dropout of one row: element c is dropped when word c % 4 of philox(key; sequence, t, c / 4, 0) < threshold.
struct DropoutRow {
  uint64_t key;
  uint32_t sequence, t;
  uint32_t threshold;              // drop_threshold(p)
  float keep;                      // 1 / (1 - p)
};

template <class T> struct RowKernels {
  // ---- conversion and sums of two --------------------------------------------------------------------------------
  void (*widen)(float* y, const T* x, int64_t n);
  void (*narrow)(T* y, const float* x, int64_t n);
  void (*add)(T* y, const T* a, const T* b, int64_t n);                        // y = a + b; y may be a or b
  double (*sum_squares)(const T* x, int64_t n);                                // squares and sums in double

  // ---- normalisation of one group of D channels -------------------------------------------------------------------
  // mean == nullptr: RMSNorm, else LayerNorm. w, b: f32 (widen a bf16 weight once per op), nullptr = absent.
  // With a and b_add, x = a + b_add is written first, and x as stored is what is normed; else x is only read.
  void (*norm_forward)(T* out, float* rstd, float* mean, T* x, const T* a, const T* b_add, const float* w, const float* b, int64_t D,
                       float eps);
  // dx written, or added to when add_dx; dx may be dout. dw, db (D) accumulated, nullptr = absent: give every thread or block
  // of rows its own pair and add them up in a fixed order.
  void (*norm_backward)(T* dx, float* dw, float* db, const T* dout, const T* x, float rstd, const float* mean, const float* w,
                        int64_t D, bool add_dx);

  // ---- activations -------------------------------------------------------------------------------------------------
  void (*gelu_forward)(T* y, const T* x, int64_t n);                           // tanh form; y may be x
  void (*gelu_backward)(T* dx, const T* dy, const T* x, int64_t n);            // dx may be dy
  void (*swiglu_forward)(T* y, const T* x, int64_t F);                         // x = [gate | up], 2F
  void (*swiglu_backward)(T* dx, const T* dy, const T* x, int64_t F);          // dx 2F, dy F
  void (*dropout)(T* y, const T* x, int64_t n, const DropoutRow&);             // y may be x

  // ---- cross-entropy over the n valid columns of a row (leave out the padding) -------------------------------------
  void (*softcap)(T* z, int64_t n, float cap);                                 // z = cap tanh(z / cap)
  void (*softmax_stats)(float* max, float* sum, const T* z, int64_t n);        // sum = sum exp(z - max); n = 0: -inf, 0
  // z = (exp(z - max) / sum - [column == target]) * scale, times 1 - (z / cap)^2 when cap > 0; target < 0: not here.
  void (*softmax_gradient)(T* z, int64_t n, float max, float sum, int64_t target, float scale, float cap);

  // ---- optimizer -----------------------------------------------------------------------------------------------------
  // p, m, v updated; value (nullptr, or p's own memory when T is float) gets p in T.
  void (*adamw)(T* value, float* p, float* m, float* v, const float* grad, int64_t n, const AdamWFactors&);
};

template <class T> const RowKernels<T>& rows();
template <> const RowKernels<float>& rows<float>();
template <> const RowKernels<bf16>& rows<bf16>();

// The tables themselves. Calling into one above the machine's tier is an illegal instruction.
extern const RowKernels<float> kRowsPlainF32, kRowsAvx2F32, kRowsAvx512F32;
extern const RowKernels<bf16> kRowsPlainBf16, kRowsAvx2Bf16, kRowsAvx512Bf16;

}  // namespace wyvern::isa
