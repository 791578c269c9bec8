#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/base/philox.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/ranges.h"

namespace wyvern::cpu {

void zero(Stream&, const Zero& a) {
  char* p = static_cast<char*>(a.y.data);
  const int64_t bytes = a.y.bytes();
  constexpr int64_t kPiece = 1 << 20;
#pragma omp parallel for schedule(static) if (bytes > kPiece)
  for (int64_t b = 0; b < bytes; b += kPiece) std::memset(p + b, 0, size_t(b + kPiece < bytes ? kPiece : bytes - b));
}

void add(Stream&, const Add& a) {
  const int64_t n = a.y.numel();
  with_float(a.y.dtype, [&]<class T>(T) {
    T* y = as<T>(a.y);
    const T *x = as<T>(a.a), *z = as<T>(a.b);
    for_ranges(n, [&](int64_t b, int64_t e) {
      if constexpr (kIsDouble<T>)
        for (int64_t i = b; i < e; i++) y[i] = x[i] + z[i];
      else isa::rows<T>().add(y + b, x + b, z + b, e - b);
    });
  });
}

void cast(Stream&, const Cast& a) {
  const int64_t n = a.y.numel();
  with_float(a.y.dtype, [&]<class Y>(Y) {
    with_float(a.x.dtype, [&]<class X>(X) {
      Y* y = as<Y>(a.y);
      const X* x = as<X>(a.x);
      for_ranges(n, [&](int64_t b, int64_t e) {
        if constexpr (std::is_same_v<X, float> && !kIsDouble<Y>) isa::rows<Y>().narrow(y + b, x + b, e - b);
        else if constexpr (std::is_same_v<Y, float> && !kIsDouble<X>) isa::rows<X>().widen(y + b, x + b, e - b);
        else if constexpr (std::is_same_v<Y, X>) std::memcpy(y + b, x + b, size_t(e - b) * sizeof(Y));
        else for (int64_t i = b; i < e; i++) y[i] = Y(acc_t<Y>(acc_t<X>(x[i])));
      });
    });
  });
}

void dropout(Stream&, const Dropout& a) {
  const int64_t N = a.x.dim[0], C = a.x.dim[1];
  const uint32_t threshold = drop_threshold(a.p);
  with_float(a.x.dtype, [&]<class T>(T) {
    T* y = as<T>(a.y);
    const T* x = as<T>(a.x);
    const auto keep = acc_t<T>(1 / (1 - a.p));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
      const auto sequence = uint32_t(a.first_sequence + n / a.T), t = uint32_t(n % a.T);
      if constexpr (!kIsDouble<T>) {
        isa::rows<T>().dropout(y + n * C, x + n * C, C, {.key = a.key, .sequence = sequence, .t = t, .threshold = threshold, .keep = keep});
        continue;
      }
      for (int64_t c = 0; c < C; c += 4) {
        const auto words = philox(a.key, sequence, t, uint32_t(c / 4), 0);
        for (int64_t j = c; j < C && j < c + 4; j++)
          y[n * C + j] = words[size_t(j - c)] < threshold ? T(acc_t<T>(0)) : T(acc_t<T>(x[n * C + j]) * keep);
      }
    }
  });
}

}  // namespace wyvern::cpu
