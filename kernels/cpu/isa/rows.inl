// The row kernels of rows.h, for whatever instruction set the including file is compiled for (rows_plain.cpp, rows_avx2.cpp,
// rows_avx512.cpp). Everything is static and nothing of std:: is used: no shared inline function may be compiled here.
//
// The vectors are the compiler's own (GCC and Clang), as wide as the registers. Sums are kept per lane and folded in a fixed
// order. Lengths that are no multiple of the width end in one partial vector, padded with a value that changes nothing.
#include "kernels/cpu/isa/rows.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace wyvern::isa {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

#define INLINE [[gnu::always_inline]] inline

typedef float F32 __attribute__((vector_size(4 * kWidth)));
typedef int32_t I32 __attribute__((vector_size(4 * kWidth)));
typedef uint32_t U32 __attribute__((vector_size(4 * kWidth)));
typedef uint16_t U16 __attribute__((vector_size(2 * kWidth)));
typedef double F64 __attribute__((vector_size(8 * kWidth)));          // two registers
typedef F32 UnalignedF32 __attribute__((aligned(4), may_alias));
typedef U16 UnalignedU16 __attribute__((aligned(2), may_alias));

INLINE F32 all(float x) { return x - F32{}; }          // minus: -0 stays -0
INLINE F32 choose(I32 mask, F32 yes, F32 no) { return F32((mask & I32(yes)) | (~mask & I32(no))); }

// ---- load and store: a full vector, or the first `count` lanes ------------------------------------------------------------
struct Full {};
struct Part {
  int64_t count;
};

INLINE F32 load(const float* p, Full, float = 0) { return *reinterpret_cast<const UnalignedF32*>(p); }
INLINE void store(float* p, F32 x, Full) { *reinterpret_cast<UnalignedF32*>(p) = x; }
INLINE F32 load(const float* p, Part part, float padding = 0) {
  F32 x = all(padding);
  for (int64_t i = 0; i < part.count; i++) x[i] = p[i];
  return x;
}
INLINE void store(float* p, F32 x, Part part) {
  for (int64_t i = 0; i < part.count; i++) p[i] = x[i];
}
INLINE F32 widened(U16 bits) { return F32(__builtin_convertvector(bits, U32) << 16); }
INLINE U16 narrowed(F32 x) {                        // to nearest even; NaN stays NaN
  const U32 u = U32(x), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
  const U32 nan = U32(x != x);
  return __builtin_convertvector((nan & quiet) | (~nan & rounded), U16);
}
INLINE F32 load(const bf16* p, Full, float = 0) { return widened(*reinterpret_cast<const UnalignedU16*>(p)); }
INLINE void store(bf16* p, F32 x, Full) { *reinterpret_cast<UnalignedU16*>(p) = narrowed(x); }
INLINE F32 load(const bf16* p, Part part, float padding = 0) {
  U16 bits = {};
  for (int64_t i = 0; i < part.count; i++) bits[i] = p[i].bits;
  F32 x = widened(bits);
  for (int64_t i = part.count; i < kWidth; i++) x[i] = padding;
  return x;
}
INLINE void store(bf16* p, F32 x, Part part) {
  const U16 bits = narrowed(x);
  for (int64_t i = 0; i < part.count; i++) p[i].bits = bits[i];
}

// f(i, which): for every full vector of [0, n), then for the rest.
template <class F> INLINE void sweep(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) f(i, Full{});
  if (i < n) f(i, Part{n - i});
}

INLINE float sum_lanes(F32 x) {
  float lane[kWidth];
  for (int i = 0; i < kWidth; i++) lane[i] = x[i];
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}
// Sums over a row need several accumulators, or the latency of an addition bounds them.
struct Sum {
  F32 part[4] = {};
  INLINE void add(int64_t i, F32 x) { part[i / kWidth % 4] += x; }
  INLINE float total() const { return sum_lanes((part[0] + part[1]) + (part[2] + part[3])); }
};

// ---- elementary functions -------------------------------------------------------------------------------------------------
INLINE F32 root_of(F32 x) {
#if defined(__AVX512F__)
  return F32(_mm512_maskz_sqrt_ps(0xffff, __m512(x)));          // the unmasked form trips a warning of gcc 12 (PR 105593)
#elif defined(__AVX2__)
  return F32(_mm256_sqrt_ps(__m256(x)));
#elif defined(__SSE2__)
  return F32(_mm_sqrt_ps(__m128(x)));
#else
  for (int i = 0; i < kWidth; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Limits that keep NaN.
INLINE F32 at_least(F32 x, float low) { return choose(x < low, all(low), x); }
INLINE F32 at_most(F32 x, float high) { return choose(x > high, all(high), x); }

struct Exponential {
  F32 power, tail;                                  // e^x = power * (1 + tail), power a power of two, |tail| < 0.42
};
// For -87.3 <= x <= 88.3. x = k ln 2 + r; e^r - 1 = r + r^2 q(r), q minimax of degree 4: 1.4e-8 relative before rounding.
INLINE Exponential exponential(F32 x) {
  const float kRound = 12582912.0f;                 // 1.5 * 2^23: adding it rounds to an integer, which stands in the low bits
  const F32 shifted = x * 1.44269504f + kRound, k = shifted - kRound;
  F32 r = x - k * 0.693145752f;                     // ln 2 in two parts: k times the first is exact
  r = r - k * 1.42860677e-6f;
  F32 q = r * 1.38825101e-3f + 8.36658034e-3f;
  q = q * r + 4.16672018e-2f;
  q = q * r + 1.66665432e-1f;
  q = q * r + 4.99999981e-1f;
  return {F32((I32(shifted) << 23) + I32(all(1.0f))), (q * r) * r + r};
}
// e^x for x <= 0 (softmax): below 2^-126 it is 0, NaN stays NaN.
INLINE F32 exp_negative(F32 x) {
  const Exponential e = exponential(at_least(x, -87.0f));
  return choose(x < -87.0f, F32{}, e.power * e.tail + e.power);
}
// 1 / (1 + e^-x): below -87 it is 0, so that any finite x times it is 0.
INLINE F32 sigmoid(F32 x) {
  const Exponential e = exponential(at_most(at_least(-x, -87.0f), 87.0f));
  return choose(x < -87.0f, F32{}, 1.0f / (e.power * e.tail + e.power + 1.0f));
}
INLINE F32 tanh_of(F32 x) {                         // tanh |x| = m / (m + 2), m = e^2|x| - 1: relative precision near 0, too
  const I32 sign = I32(x) & I32(all(-0.0f));
  const Exponential e = exponential(at_most(F32(I32(x) ^ sign) * 2.0f, 40.0f));
  const F32 m = e.power * e.tail + (e.power - 1.0f);
  return F32(I32(m / (m + 2.0f)) | sign);
}

// ---- conversion and sums of two -------------------------------------------------------------------------------------------
template <class T> void widen(float* y, const T* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) { store(y + i, load(x + i, w), w); });
}
template <class T> void narrow(T* y, const float* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) { store(y + i, load(x + i, w), w); });
}
template <class T> void add(T* y, const T* a, const T* b, int64_t n) {
  sweep(n, [=](int64_t i, auto w) { store(y + i, load(a + i, w) + load(b + i, w), w); });
}
template <class T> double sum_squares(const T* x, int64_t n) {
  F64 sum[2] = {};
  sweep(n, [&](int64_t i, auto w) {
    const F64 v = __builtin_convertvector(load(x + i, w), F64);
    sum[i / kWidth % 2] += v * v;
  });
  double total = 0;
  for (int i = 0; i < kWidth; i++) total += sum[0][i] + sum[1][i];
  return total;
}

// ---- normalisation --------------------------------------------------------------------------------------------------------
// Two passes over the row, which is in the first-level cache by then: the sum of squared differences does not cancel.
template <class T>
void norm_forward(T* out, float* rstd, float* mean, T* x, const T* a, const T* b_add, const float* w, const float* b, int64_t D, float eps) {
  if (a) add(x, a, b_add, D);
  float m = 0;
  if (mean) {
    Sum sum;
    sweep(D, [&](int64_t i, auto v) { sum.add(i, load(x + i, v)); });
    *mean = m = sum.total() / float(D);
  }
  Sum squares;
  sweep(D, [&](int64_t i, auto v) {
    const F32 c = load(x + i, v, m) - m;
    squares.add(i, c * c);
  });
  const float r = 1.0f / __builtin_sqrtf(squares.total() / float(D) + eps);
  *rstd = r;
  sweep(D, [&](int64_t i, auto v) {
    F32 y = (load(x + i, v) - m) * r;
    if (w) y *= load(w + i, v);
    if (b) y += load(b + i, v);
    store(out + i, y, v);
  });
}

// With xhat = (x - mean) rstd and g = w dout: dx = rstd (g - avg(g) - xhat avg(g xhat)); RMSNorm has neither mean nor avg(g).
template <class T>
void norm_backward(T* dx, float* dw, float* db, const T* dout, const T* x, float rstd, const float* mean, const float* w, int64_t D, bool add_dx) {
  const float m = mean ? *mean : 0.0f;
  Sum plain, along;
  sweep(D, [&](int64_t i, auto v) {
    const F32 dy = load(dout + i, v), xhat = (load(x + i, v) - m) * rstd, g = w ? dy * load(w + i, v) : dy;
    plain.add(i, g);
    along.add(i, g * xhat);
    if (dw) store(dw + i, load(dw + i, v) + dy * xhat, v);
    if (db) store(db + i, load(db + i, v) + dy, v);
  });
  const float avg = mean ? plain.total() / float(D) : 0.0f, slope = along.total() / float(D);
  sweep(D, [&](int64_t i, auto v) {
    const F32 dy = load(dout + i, v), xhat = (load(x + i, v) - m) * rstd, g = w ? dy * load(w + i, v) : dy;
    F32 d = (g - avg - xhat * slope) * rstd;
    if (add_dx) d += load(dx + i, v);
    store(dx + i, d, v);
  });
}

// ---- activations ----------------------------------------------------------------------------------------------------------
// x/2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation where tanh is near -1.
constexpr float kTwoRoot2OverPi = 1.59576912f, kCubic = 0.044715f;

template <class T> void gelu_forward(T* y, const T* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) {
    const F32 v = load(x + i, w);
    store(y + i, v * sigmoid(v * kTwoRoot2OverPi * (v * v * kCubic + 1.0f)), w);
  });
}
template <class T> void gelu_backward(T* dx, const T* dy, const T* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) {
    const F32 v = at_most(at_least(load(x + i, w), -15.0f), 15.0f);          // the slope is 0 or 1 there; v^3 must not overflow
    const F32 s = sigmoid(v * kTwoRoot2OverPi * (v * v * kCubic + 1.0f));
    const F32 slope = s + v * s * (1.0f - s) * kTwoRoot2OverPi * (v * v * (3 * kCubic) + 1.0f);
    store(dx + i, load(dy + i, w) * slope, w);
  });
}
template <class T> void swiglu_forward(T* y, const T* x, int64_t F) {
  sweep(F, [=](int64_t i, auto w) {
    const F32 gate = load(x + i, w), up = load(x + F + i, w);
    store(y + i, up * gate * sigmoid(gate), w);
  });
}
template <class T> void swiglu_backward(T* dx, const T* dy, const T* x, int64_t F) {
  sweep(F, [=](int64_t i, auto w) {
    const F32 gate = load(x + i, w), up = load(x + F + i, w), d = load(dy + i, w), s = sigmoid(gate);
    store(dx + i, d * up * s * (1.0f + gate * (1.0f - s)), w);
    store(dx + F + i, d * gate * s, w);
  });
}

// Philox4x32-10 (kernels/base/philox.h), kGroups counters at a time in plain loops that the compiler vectorises.
template <class T> void dropout(T* y, const T* x, int64_t n, const DropoutRow& row) {
  constexpr int kGroups = 16;
  for (int64_t c = 0; c < n; c += 4 * kGroups) {
    float factor[4 * kGroups];
    for (int g = 0; g < kGroups; g++) {
      uint32_t w0 = row.sequence, w1 = row.t, w2 = uint32_t(c / 4) + uint32_t(g), w3 = 0, k0 = uint32_t(row.key), k1 = uint32_t(row.key >> 32);
      for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p = uint64_t(0xD2511F53u) * w0, q = uint64_t(0xCD9E8D57u) * w2;
        w0 = uint32_t(q >> 32) ^ w1 ^ k0;
        w2 = uint32_t(p >> 32) ^ w3 ^ k1;
        w1 = uint32_t(q);
        w3 = uint32_t(p);
      }
      factor[4 * g] = w0 < row.threshold ? 0.0f : row.keep;
      factor[4 * g + 1] = w1 < row.threshold ? 0.0f : row.keep;
      factor[4 * g + 2] = w2 < row.threshold ? 0.0f : row.keep;
      factor[4 * g + 3] = w3 < row.threshold ? 0.0f : row.keep;
    }
    const int64_t count = n - c < 4 * kGroups ? n - c : 4 * kGroups;
    sweep(count, [&](int64_t i, auto w) {
      const F32 f = load(factor + i, w);
      store(y + c + i, choose(f == 0.0f, F32{}, load(x + c + i, w) * f), w);      // a dropped NaN is 0
    });
  }
}

// ---- cross-entropy --------------------------------------------------------------------------------------------------------
template <class T> void softcap(T* z, int64_t n, float cap) {
  sweep(n, [=](int64_t i, auto w) { store(z + i, tanh_of(load(z + i, w) / cap) * cap, w); });
}
template <class T> void softmax_stats(float* max, float* sum, const T* z, int64_t n) {
  const float lowest = -__builtin_inff();
  F32 top[4] = {all(lowest), all(lowest), all(lowest), all(lowest)};
  sweep(n, [&](int64_t i, auto w) {
    const F32 v = load(z + i, w, lowest);
    F32& t = top[i / kWidth % 4];
    t = choose(v > t, v, t);                        // passes over NaN, which then shows in the sum
  });
  float m = lowest;
  for (int i = 0; i < kWidth; i++)
    for (int j = 0; j < 4; j++) m = top[j][i] > m ? top[j][i] : m;
  Sum total;
  sweep(n, [&](int64_t i, auto w) { total.add(i, exp_negative(load(z + i, w, lowest) - m)); });
  *max = m;
  *sum = n > 0 ? total.total() : 0.0f;
}
template <class T> void softmax_gradient(T* z, int64_t n, float max, float sum, int64_t target, float scale, float cap) {
  const bool here = target >= 0 && target < n;
  const float inverse = 1.0f / sum, inverse_cap = cap > 0 ? 1.0f / cap : 0.0f;
  const F32 at_target = here ? load(z + target, Part{1}) : F32{};
  const auto gradient = [=](F32 v, float hot) {
    const F32 t = v * inverse_cap;
    return (exp_negative(v - max) * inverse - hot) * scale * (1.0f - t * t);
  };
  sweep(n, [=](int64_t i, auto w) { store(z + i, gradient(load(z + i, w), 0.0f), w); });
  if (here) store(z + target, gradient(at_target, 1.0f), Part{1});
}

// ---- optimizer ------------------------------------------------------------------------------------------------------------
template <class T> void adamw(T* value, float* p, float* m, float* v, const float* grad, int64_t n, const AdamWFactors& f) {
  sweep(n, [=](int64_t i, auto w) {
    const F32 g = load(grad + i, w) * f.grad_scale;
    const F32 m1 = load(m + i, w) * f.beta1 + g * f.rest1, v1 = load(v + i, w) * f.beta2 + g * g * f.rest2;
    const F32 p1 = load(p + i, w) * f.decay - m1 * f.step / (root_of(v1) * f.root + f.eps);
    store(m + i, m1, w);
    store(v + i, v1, w);
    store(p + i, p1, w);
    if (value) store(value + i, p1, w);
  });
}

template <class T> constexpr RowKernels<T> table() {
  return {widen<T>,         narrow<T>,         add<T>,     sum_squares<T>, norm_forward<T>,  norm_backward<T>,    gelu_forward<T>, gelu_backward<T>,
          swiglu_forward<T>, swiglu_backward<T>, dropout<T>, softcap<T>,     softmax_stats<T>, softmax_gradient<T>, adamw<T>};
}

#undef INLINE

}  // namespace
}  // namespace wyvern::isa
