#include "kernels/linear.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/isa/gemm.h"
#include "kernels/cpu/isa/tier.h"

namespace wyvern::cpu {
namespace {

// The plain twin: every sum in acc_t, in index order. F64 models, and the oracle of the fast path.
template <class T> void plain_forward(const LinearForward& a) {
  using A = acc_t<T>;
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  const T *x = as<T>(a.x), *w = as<T>(a.w), *b = a.b ? as<T>(a.b) : nullptr;
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++) {
      A t = b ? A(b[o]) : A(0);
      for (int64_t i = 0; i < I; i++) t += A(x[n * I + i]) * A(w[o * I + i]);
      if (a.y.dtype == a.x.dtype) as<T>(a.y)[n * O + o] = T(t);
      else as<A>(a.y)[n * O + o] = t;
    }
}

template <class T> void plain_backward(const LinearBackward& a) {
  using A = acc_t<T>;
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  const T *dy = as<T>(a.dy), *x = as<T>(a.x), *w = as<T>(a.w);
  if (a.dx) {
    T* dx = as<T>(a.dx);
#pragma omp parallel
    {
      std::vector<A> row(static_cast<size_t>(I));
#pragma omp for schedule(static)
      for (int64_t n = 0; n < N; n++) {
        for (A& r : row) r = 0;
        for (int64_t o = 0; o < O; o++)
          for (int64_t i = 0; i < I; i++) row[size_t(i)] += A(dy[n * O + o]) * A(w[o * I + i]);
        for (int64_t i = 0; i < I; i++) dx[n * I + i] = T(row[size_t(i)]);
      }
    }
  }
  A* dw = as<A>(a.dw);
#pragma omp parallel for schedule(static)
  for (int64_t o = 0; o < O; o++)
    for (int64_t n = 0; n < N; n++)
      for (int64_t i = 0; i < I; i++) dw[o * I + i] += A(dy[n * O + o]) * A(x[n * I + i]);
}

// Column sums: fixed blocks of rows, so the bits do not depend on the thread count.
template <class T> void bias_backward(const LinearBackward& a) {
  using A = acc_t<T>;
  const int64_t N = a.dy.dim[0], O = a.dy.dim[1];
  const T* dy = as<T>(a.dy);
  A* db = as<A>(a.db);
  constexpr int64_t kStripe = 128;
#pragma omp parallel for schedule(static)
  for (int64_t o0 = 0; o0 < O; o0 += kStripe) {
    A part[kStripe] = {};
    const int64_t width = o0 + kStripe < O ? kStripe : O - o0;
    for (int64_t n = 0; n < N; n++)
      for (int64_t o = 0; o < width; o++) part[o] += A(dy[n * O + o0 + o]);
    for (int64_t o = 0; o < width; o++) db[o0 + o] += part[o];
  }
}

// The three products of a linear layer, as the micro-kernels see them.
isa::Gemm forward_gemm(const LinearForward& a) {
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  return {.M = N,
          .N = O,
          .K = I,
          .a = a.x.data,
          .lda = I,
          .transpose_a = false,
          .b = a.w.data,
          .ldb = I,
          .transpose_b = true,
          .c = a.y.data,
          .ldc = O,
          .bias = a.b ? a.b.data : nullptr};
}
isa::Gemm input_gemm(const LinearBackward& a) {
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  return {.M = N,
          .N = I,
          .K = O,
          .a = a.dy.data,
          .lda = O,
          .transpose_a = false,
          .b = a.w.data,
          .ldb = I,
          .transpose_b = false,
          .c = a.dx.data,
          .ldc = I};
}
isa::Gemm weight_gemm(const LinearBackward& a) {
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  return {.M = O,
          .N = I,
          .K = N,
          .a = a.dy.data,
          .lda = O,
          .transpose_a = true,
          .b = a.x.data,
          .ldb = I,
          .transpose_b = false,
          .c = a.dw.data,
          .ldc = I,
          .accumulate = true};
}

void fast_gemm(DType in, DType out, const isa::Gemm& g) {
  if (in == DType::f32) isa::gemm_f32(g);
  else if (out == DType::bf16) isa::gemm_bf16(g);
  else isa::gemm_bf16_f32(g);
}
bool use_plain(DType d) { return d == DType::f64 || isa::tier() == isa::Tier::plain; }

}  // namespace

void linear_forward(Stream&, const LinearForward& a) {
  if (use_plain(a.x.dtype)) return with_float(a.x.dtype, [&]<class T>(T) { plain_forward<T>(a); });
  fast_gemm(a.x.dtype, a.y.dtype, forward_gemm(a));
}

void linear_backward(Stream&, const LinearBackward& a) {
  if (a.db) with_float(a.dy.dtype, [&]<class T>(T) { bias_backward<T>(a); });
  if (use_plain(a.x.dtype)) return with_float(a.x.dtype, [&]<class T>(T) { plain_backward<T>(a); });
  if (a.dx) fast_gemm(a.x.dtype, a.dx.dtype, input_gemm(a));
  fast_gemm(a.x.dtype, DType::f32, weight_gemm(a));
}

int64_t workspace(const LinearForward& a) {
  return use_plain(a.x.dtype) ? 0 : isa::gemm_workspace(forward_gemm(a), a.x.dtype == DType::bf16);
}
int64_t workspace(const LinearBackward& a) {
  if (use_plain(a.x.dtype)) return 0;
  const bool bf16 = a.x.dtype == DType::bf16;
  return std::max(a.dx ? isa::gemm_workspace(input_gemm(a), bf16) : 0, isa::gemm_workspace(weight_gemm(a), bf16));
}

}  // namespace wyvern::cpu
