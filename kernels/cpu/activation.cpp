#include "kernels/activation.h"

#include <cmath>

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/ranges.h"

namespace wyvern::cpu {
namespace {

template <class A> constexpr A kRoot2OverPi = A(0.79788456080286535588);   // sqrt(2 / pi)
template <class A> constexpr A kCubic = A(0.044715);
template <class A> constexpr A kInvRoot2 = A(0.70710678118654752440);
template <class A> constexpr A kInvRoot2Pi = A(0.39894228040143267794);    // 1 / sqrt(2 pi)

template <class A> A gelu(A x, Gelu form) {
  if (form == Gelu::erf) return A(0.5) * x * (1 + std::erf(x * kInvRoot2<A>));
  return A(0.5) * x * (1 + std::tanh(kRoot2OverPi<A> * (x + kCubic<A> * x * x * x)));
}
template <class A> A gelu_slope(A x, Gelu form) {
  if (form == Gelu::erf) return A(0.5) * (1 + std::erf(x * kInvRoot2<A>)) + x * kInvRoot2Pi<A> * std::exp(-x * x / 2);
  const A t = std::tanh(kRoot2OverPi<A> * (x + kCubic<A> * x * x * x));
  return A(0.5) * (1 + t) + A(0.5) * x * (1 - t * t) * kRoot2OverPi<A> * (1 + 3 * kCubic<A> * x * x);
}

}  // namespace

void gelu_forward(Stream&, const GeluForward& a) {
  const int64_t n = a.x.numel();
  with_float(a.x.dtype, [&]<class T>(T) {
    T* y = as<T>(a.y);
    const T* x = as<T>(a.x);
    for_ranges(n, [&](int64_t b, int64_t e) {
      if constexpr (!kIsDouble<T>)
        if (a.form == Gelu::tanh) return isa::rows<T>().gelu_forward(y + b, x + b, e - b);
      for (int64_t i = b; i < e; i++) y[i] = T(gelu(acc_t<T>(x[i]), a.form));
    });
  });
}

void gelu_backward(Stream&, const GeluBackward& a) {
  const int64_t n = a.x.numel();
  with_float(a.x.dtype, [&]<class T>(T) {
    T* dx = as<T>(a.dx);
    const T *dy = as<T>(a.dy), *x = as<T>(a.x);
    for_ranges(n, [&](int64_t b, int64_t e) {
      if constexpr (!kIsDouble<T>)
        if (a.form == Gelu::tanh) return isa::rows<T>().gelu_backward(dx + b, dy + b, x + b, e - b);
      for (int64_t i = b; i < e; i++) dx[i] = T(acc_t<T>(dy[i]) * gelu_slope(acc_t<T>(x[i]), a.form));
    });
  });
}

void swiglu_forward(Stream&, const SwigluForward& a) {
  const int64_t N = a.y.dim[0], F = a.y.dim[1];
  with_float(a.x.dtype, [&]<class T>(T) {
    using A = acc_t<T>;
    T* y = as<T>(a.y);
    const T* x = as<T>(a.x);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
      if constexpr (!kIsDouble<T>) {
        isa::rows<T>().swiglu_forward(y + n * F, x + n * 2 * F, F);
        continue;
      }
      for (int64_t i = 0; i < F; i++) {
        const A g = A(x[n * 2 * F + i]), u = A(x[n * 2 * F + F + i]);
        y[n * F + i] = T(u * g / (1 + std::exp(-g)));
      }
    }
  });
}

void swiglu_backward(Stream&, const SwigluBackward& a) {
  const int64_t N = a.dy.dim[0], F = a.dy.dim[1];
  with_float(a.x.dtype, [&]<class T>(T) {
    using A = acc_t<T>;
    T* dx = as<T>(a.dx);
    const T *dy = as<T>(a.dy), *x = as<T>(a.x);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
      if constexpr (!kIsDouble<T>) {
        isa::rows<T>().swiglu_backward(dx + n * 2 * F, dy + n * F, x + n * 2 * F, F);
        continue;
      }
      for (int64_t i = 0; i < F; i++) {
        const A g = A(x[n * 2 * F + i]), u = A(x[n * 2 * F + F + i]), d = A(dy[n * F + i]), sigma = 1 / (1 + std::exp(-g));
        dx[n * 2 * F + i] = T(d * u * sigma * (1 + g * (1 - sigma)));
        dx[n * 2 * F + F + i] = T(d * g * sigma);
      }
    }
  });
}

}  // namespace wyvern::cpu
