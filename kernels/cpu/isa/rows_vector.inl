// The vectors of rows.inl: as wide as the registers of the instruction set the including file is compiled for. Arithmetic is
// the compiler's own (GCC and Clang vector types); the few operations it does not reach are intrinsics, by tier, in the middle.
// Everything is static and nothing of std:: is used: no shared inline function may be compiled here.
#pragma once
#include "kernels/base/dtype.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"      // gcc 12's own AVX-512 headers (PR 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define INLINE [[gnu::always_inline]] inline

namespace wyvern::isa {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float F32 __attribute__((vector_size(4 * kWidth)));
typedef int32_t I32 __attribute__((vector_size(4 * kWidth)));
typedef uint32_t U32 __attribute__((vector_size(4 * kWidth)));
typedef uint64_t U64 __attribute__((vector_size(4 * kWidth)));
typedef uint16_t U16 __attribute__((vector_size(2 * kWidth)));
typedef double F64 __attribute__((vector_size(8 * kWidth)));          // two registers
typedef F32 UnalignedF32 __attribute__((aligned(4), may_alias));
typedef U32 UnalignedU32 __attribute__((aligned(4), may_alias));
typedef U16 UnalignedU16 __attribute__((aligned(2), may_alias));

INLINE F32 all(float x) { return x - F32{}; }                         // minus: -0 stays -0

// ---- by tier --------------------------------------------------------------------------------------------------------------
//   root_of       square root
//   inverse_of    1 / x to about 1 ulp for normal, finite x; NaN stays NaN
//   at_least, at_most    limits that let NaN through: max and min return their second operand then
//   widen_bits, narrow_bits    16 bits to 32 and back (values below 2^16)
//   low_product   64-bit product of the low 32 bits of every lane
#if defined(__AVX512F__)
INLINE F32 root_of(F32 x) { return _mm512_sqrt_ps(x); }
INLINE F32 inverse_of(F32 x) {                                        // an estimate of 14 bits and one Newton step
  const F32 y = _mm512_rcp14_ps(x);
  return y + y * (1.0f - x * y);
}
INLINE F32 at_least(F32 x, float low) { return _mm512_max_ps(all(low), x); }
INLINE F32 at_most(F32 x, float high) { return _mm512_min_ps(all(high), x); }
INLINE U32 widen_bits(U16 x) { return U32(_mm512_cvtepu16_epi32(__m256i(x))); }
INLINE U16 narrow_bits(U32 x) { return U16(_mm512_cvtepi32_epi16(__m512i(x))); }
INLINE U64 low_product(U64 a, uint32_t b) { return U64(_mm512_mul_epu32(__m512i(a), __m512i(U64{} + b))); }
#elif defined(__AVX2__)
INLINE F32 root_of(F32 x) { return _mm256_sqrt_ps(x); }
INLINE F32 inverse_of(F32 x) { return 1.0f / x; }
INLINE F32 at_least(F32 x, float low) { return _mm256_max_ps(all(low), x); }
INLINE F32 at_most(F32 x, float high) { return _mm256_min_ps(all(high), x); }
INLINE U32 widen_bits(U16 x) { return U32(_mm256_cvtepu16_epi32(__m128i(x))); }
INLINE U16 narrow_bits(U32 x) { return U16(_mm_packus_epi32(_mm256_castsi256_si128(__m256i(x)), _mm256_extracti128_si256(__m256i(x), 1))); }
INLINE U64 low_product(U64 a, uint32_t b) { return U64(_mm256_mul_epu32(__m256i(a), __m256i(U64{} + b))); }
#else
INLINE F32 inverse_of(F32 x) { return 1.0f / x; }
INLINE F32 at_least(F32 x, float low) { return x < low ? all(low) : x; }
INLINE F32 at_most(F32 x, float high) { return x > high ? all(high) : x; }
INLINE U32 widen_bits(U16 x) { return __builtin_convertvector(x, U32); }
INLINE U16 narrow_bits(U32 x) { return __builtin_convertvector(x, U16); }
#if defined(__SSE2__)
INLINE F32 root_of(F32 x) { return _mm_sqrt_ps(x); }
INLINE U64 low_product(U64 a, uint32_t b) { return U64(_mm_mul_epu32(__m128i(a), __m128i(U64{} + b))); }
#else
INLINE F32 root_of(F32 x) {
  for (int i = 0; i < kWidth; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
INLINE U64 low_product(U64 a, uint32_t b) { return (a & 0xffffffffull) * b; }
#endif
#endif

// ---- load and store: a full vector, or the first `count` lanes ------------------------------------------------------------
struct Full {};
struct Part {
  int64_t count;
};

// Every row op streams. Asking 2 KiB ahead is worth up to a factor of 1.7 where arithmetic and memory take about as long.
constexpr int64_t kAhead = 2048;
INLINE void fetch(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + kAhead); }
INLINE void fetch_to_write(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + kAhead, 1); }

INLINE F32 load(const float* p, Full, float = 0) {
  fetch(p);
  return *reinterpret_cast<const UnalignedF32*>(p);
}
INLINE void store(float* p, F32 x, Full) {
  fetch_to_write(p);
  *reinterpret_cast<UnalignedF32*>(p) = x;
}
INLINE F32 load(const float* p, Part part, float padding = 0) {
  F32 x = all(padding);
  for (int64_t i = 0; i < part.count; i++) x[i] = p[i];
  return x;
}
INLINE void store(float* p, F32 x, Part part) {
  for (int64_t i = 0; i < part.count; i++) p[i] = x[i];
}
INLINE F32 from_bf16(U16 bits) { return F32(widen_bits(bits) << 16); }
INLINE U16 to_bf16(F32 x) {                         // to nearest even; NaN stays NaN
  const U32 u = U32(x), high = u >> 16;
  return narrow_bits(x == x ? (u + 0x7fffu + (high & 1u)) >> 16 : high | 0x40u);
}
INLINE F32 load(const bf16* p, Full, float = 0) {
  fetch(p);
  return from_bf16(*reinterpret_cast<const UnalignedU16*>(p));
}
INLINE void store(bf16* p, F32 x, Full) {
  fetch_to_write(p);
  *reinterpret_cast<UnalignedU16*>(p) = to_bf16(x);
}
INLINE F32 load(const bf16* p, Part part, float padding = 0) {
  U16 bits = {};
  for (int64_t i = 0; i < part.count; i++) bits[i] = p[i].bits;
  F32 x = from_bf16(bits);
  for (int64_t i = part.count; i < kWidth; i++) x[i] = padding;
  return x;
}
INLINE void store(bf16* p, F32 x, Part part) {
  const U16 bits = to_bf16(x);
  for (int64_t i = 0; i < part.count; i++) p[i].bits = bits[i];
}

// f(i, which): for every full vector of [0, n), then for the rest.
template <class F> INLINE void sweep(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) f(i, Full{});
  if (i < n) f(i, Part{n - i});
}

// ---- sums over a row: four accumulators, or the latency of an addition would bound them; folded in a fixed order ----------
INLINE float sum_lanes(F32 x) {
  float lane[kWidth];
  for (int i = 0; i < kWidth; i++) lane[i] = x[i];
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}
struct Sum {
  F32 part[4] = {};
  INLINE void add(int64_t i, F32 x) { part[i / kWidth % 4] += x; }
  INLINE float total() const { return sum_lanes((part[0] + part[1]) + (part[2] + part[3])); }
};

// ---- elementary functions -------------------------------------------------------------------------------------------------
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
// e^x for x <= 0 (softmax): below e^-87 it is 0, NaN stays NaN.
INLINE F32 exp_negative(F32 x) {
  const Exponential e = exponential(at_least(x, -87.0f));
  return x < -87.0f ? F32{} : e.power * e.tail + e.power;
}
// 1 / (1 + e^-x): below -87 it is 0, so that any finite x times it is 0.
INLINE F32 sigmoid(F32 x) {
  const Exponential e = exponential(at_most(at_least(-x, -87.0f), 87.0f));
  return x < -87.0f ? F32{} : inverse_of(e.power * e.tail + e.power + 1.0f);
}
INLINE F32 tanh_of(F32 x) {                         // tanh |x| = m / (m + 2), m = e^2|x| - 1: relative precision near 0, too
  const I32 sign = I32(x) & I32(all(-0.0f));
  const Exponential e = exponential(at_most(F32(I32(x) ^ sign) * 2.0f, 40.0f));
  const F32 m = e.power * e.tail + (e.power - 1.0f);
  return F32(I32(m * inverse_of(m + 2.0f)) | sign);
}

// Philox4x32-10 (kernels/base/philox.h) of the counters (a, b, c + i, 0), i < kWidth / 2: all the words in order, as 32-bit values in
// memory. Meanwhile a value sits in the low half of a 64-bit lane; what the high half holds does not matter, the products ignore it.
INLINE void philox_words(uint64_t* words, uint64_t key, uint32_t a, uint32_t b, uint32_t c) {
  U64 w0 = U64{} + a, w1 = U64{} + b, w2 = U64{} + c, w3 = {};
  for (int i = 0; i < kWidth / 2; i++) w2[i] += uint64_t(i);
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const U64 p = low_product(w0, 0xD2511F53u), q = low_product(w2, 0xCD9E8D57u);
    w0 = (q >> 32) ^ w1 ^ k0;
    w2 = (p >> 32) ^ w3 ^ k1;
    w1 = q;
    w3 = p;
  }
  const U64 first = (w0 & 0xffffffffull) | (w1 << 32), second = (w2 & 0xffffffffull) | (w3 << 32);
  uint64_t lane[2][kWidth / 2];
  __builtin_memcpy(lane[0], &first, sizeof first);
  __builtin_memcpy(lane[1], &second, sizeof second);
  for (int i = 0; i < kWidth / 2; i++) words[2 * i] = lane[0][i], words[2 * i + 1] = lane[1][i];
}

}  // namespace
}  // namespace wyvern::isa
