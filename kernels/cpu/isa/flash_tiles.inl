// Building blocks of flash attention on the matrix unit: a 2 x 2 block product, packers, exp2, dropout masks. Included by the
// flash_*_amx.cpp files only; everything is in an anonymous namespace, so nothing compiled here is shared with other files.
#pragma once
#include <omp.h>

#include "kernels/cpu/isa/flash_amx.h"
#include "kernels/cpu/isa/tiles.inl"

namespace wyvern::isa {
namespace {

constexpr float kLog2e = 1.44269504f;

// Carves aligned arrays out of a thread's buffer; with a null buffer it only counts.
struct Carver {
  char* base;
  int64_t used = 0;
  template <class U> U* take(int64_t n) {
    char* p = base ? base + used : nullptr;
    used += round_up(n * int64_t(sizeof(U)), 64);
    return reinterpret_cast<U*>(p);
  }
};

// C (32 x 32 f32, row stride ldc bytes) = or += sum over `steps` of [a0; a1] * [b0 b1]; each pointer advances by its step.
[[gnu::always_inline]] inline void multiply_2x2(int64_t steps, const uint16_t* a0, const uint16_t* a1, int64_t a_step,
                                                const uint16_t* b0, const uint16_t* b1, int64_t b_step, float* c, int64_t ldc,
                                                bool accumulate) {
  char* c0 = reinterpret_cast<char*>(c);
  char* c1 = c0 + 16 * ldc;
  if (accumulate) {
    TILE_LOAD(0, c0, ldc);
    TILE_LOAD(1, c0 + 64, ldc);
    TILE_LOAD(2, c1, ldc);
    TILE_LOAD(3, c1 + 64, ldc);
  } else {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
  }
  for (int64_t s = 0; s < steps; s++) {
    TILE_LOAD(4, a0, kTileBytes);
    TILE_LOAD(6, b0, kTileBytes);
    TILE_DOT(0, 4, 6);
    TILE_LOAD(7, b1, kTileBytes);
    TILE_DOT(1, 4, 7);
    TILE_LOAD(5, a1, kTileBytes);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
    a0 += a_step;
    a1 += a_step;
    b0 += b_step;
    b1 += b_step;
  }
  TILE_STORE(0, c0, ldc);
  TILE_STORE(1, c0 + 64, ldc);
  TILE_STORE(2, c1, ldc);
  TILE_STORE(3, c1 + 64, ldc);
}

// ---- packers --------------------------------------------------------------------------------------------------------------
// One head of bf16 rows inside a wider matrix. What lies beyond its rows and columns is packed as zeros. D is a multiple of 16.
struct Source {
  const uint16_t* data;
  int64_t stride, rows, D;
};
inline Source source(const FlashColumns<const uint16_t>& c, int64_t row0, int64_t rows, int64_t head, int64_t D) {
  return {c.data + row0 * c.stride + head * D, c.stride, rows, D};
}
inline __m512i load_row(const Source& s, int64_t row, int64_t column) {                       // 32 columns
  if (row >= s.rows) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(first_lanes(s.D - column), s.data + row * s.stride + column);
}
inline __m512i load_pair(const Source& s, int64_t row, int64_t column) {                      // 16 columns as (row, row + 1) pairs
  __m256i a = _mm256_setzero_si256(), b = a;
  const uint16_t* p = s.data + row * s.stride + column;
  if (row < s.rows && column < s.D) a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if (row + 1 < s.rows && column < s.D) b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + s.stride));
  return interleave(a, b);
}
// Rows of a fused matrix are kilobytes apart, which no hardware prefetcher follows: ask for 32 rows before packing others.
inline void prefetch_rows(const Source& s, int64_t first) {
  for (int64_t r = first; r < min_of(first + 32, s.rows); r++)
    for (int64_t d = 0; d < s.D; d += 32) __builtin_prefetch(s.data + r * s.stride + d);
}

// The packers take rows [first, first + 32) of the source.
// A tiles, or B tiles of the transpose (k are columns, tile columns are rows): [2][D / 32], one after the other.
inline void pack_a(uint16_t* dst, const Source& s, int64_t first) {
  for (int64_t r0 = first; r0 < first + 32; r0 += 16)
    for (int64_t d = 0; d < s.D; d += 32, dst += kTile)
      for (int64_t r = 0; r < 16; r++) _mm512_store_si512(dst + r * 32, load_row(s, r0 + r, d));
}
inline void pack_b_transposed(uint16_t* dst, const Source& s, int64_t first) {
  for (int64_t r0 = first; r0 < first + 32; r0 += 16)
    for (int64_t d = 0; d < s.D; d += 32, dst += kTile) {
      __m512i t[16];
      for (int64_t i = 0; i < 16; i++) t[i] = load_row(s, r0 + i, d);
      transpose_16x16(t);
      for (int64_t i = 0; i < 16; i++) _mm512_store_si512(dst + i * 32, t[i]);
    }
}
// B tiles (k are rows, tile columns are columns), or A tiles of the transpose (tile rows are columns): [D / 16], `next` apart.
inline void pack_b(uint16_t* dst, int64_t next, const Source& s, int64_t first) {
  for (int64_t d = 0; d < round_up(s.D, 32); d += 16, dst += next)
    for (int64_t i = 0; i < 16; i++) _mm512_store_si512(dst + i * 32, load_pair(s, first + 2 * i, d));
}
inline void pack_a_transposed(uint16_t* dst, int64_t next, const Source& s, int64_t first) {
  for (int64_t d = 0; d < round_up(s.D, 32); d += 16, dst += next) {
    __m512i t[16];
    for (int64_t i = 0; i < 16; i++) t[i] = load_pair(s, first + 2 * i, d);
    transpose_16x16(t);
    for (int64_t i = 0; i < 16; i++) _mm512_store_si512(dst + i * 32, t[i]);
  }
}

// ---- vector math -----------------------------------------------------------------------------------------------------------
// 2^x to 3e-6 relative (the bf16 it is rounded to has 2e-3): minimax of degree 4 around the nearest integer. NaN stays NaN,
// very negative x gives 0.
inline __m512 exp2_of(__m512 x) {
  const __m512 k = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, k);
  __m512 p = _mm512_set1_ps(9.58285299e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.59064247e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40240986e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93124193e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, k);
}
// tanh to about 4e-6 absolute.
inline __m512 tanh_of(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp2_of(_mm512_mul_ps(x, _mm512_set1_ps(2 * kLog2e)));       // e^2x: inf gives 1, 0 gives -1
  return _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
}
// The halves of x as 16 pairs (low[i], high[i]).
inline __m512i interleave_halves(__m512i x) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                         18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, x);
}
inline __m512i to_bf16(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
// Up to 32 values of one head's row, `left` of them wanted (a multiple of 16). Whole cache lines go past the caches: they are not
// read again soon, and their old contents need not be fetched. store_fence() before others read them.
inline void store_row(uint16_t* dst, __m512i x, int64_t left) {
  if (left >= 32 && reinterpret_cast<uintptr_t>(dst) % 64 == 0) _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), x);
  else _mm512_mask_storeu_epi16(dst, first_lanes(left), x);
}
inline void store_fence() { _mm_sfence(); }

// Bits [begin, end) of 16; both ends may lie outside.
inline __mmask16 lanes(int64_t begin, int64_t end) {
  const uint32_t b = uint32_t(max_of(0, min_of(begin, 16))), e = uint32_t(max_of(0, min_of(end, 16)));
  return __mmask16(((1u << e) - 1u) & ~((1u << b) - 1u));
}

// ---- dropout ---------------------------------------------------------------------------------------------------------------
inline void multiply(__m512i a, __m512i b, __m512i* high, __m512i* low) {                     // 32 x 32 bits to 2 x 32
  const __mmask16 odd_lanes = 0xaaaa;
  const __m512i even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(a, _mm512_srli_epi64(b, 32));
  *high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), odd_lanes, odd);
  *low = _mm512_mask_mov_epi32(even, odd_lanes, _mm512_slli_epi64(odd, 32));
}
// Philox4x32-10 on 16 counters at once (kernels/base/philox.h); word w of counter l is lane l of words[w].
inline void philox_16(uint64_t key, __m512i a, __m512i b, __m512i c, __m512i d, __m512i words[4]) {
  const __m512i ma = _mm512_set1_epi32(int32_t(0xD2511F53u)), mc = _mm512_set1_epi32(int32_t(0xCD9E8D57u));
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    __m512i p_high, p_low, q_high, q_low;
    multiply(ma, a, &p_high, &p_low);
    multiply(mc, c, &q_high, &q_low);
    a = _mm512_xor_si512(_mm512_xor_si512(q_high, b), _mm512_set1_epi32(int32_t(k0)));
    c = _mm512_xor_si512(_mm512_xor_si512(p_high, d), _mm512_set1_epi32(int32_t(k1)));
    b = q_low;
    d = p_low;
  }
  words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}
inline __m512i lane_numbers() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
// keep[w] bit l: key 4 * group + w of query row i + l survives.
inline void keep_masks(const FlashProblem& p, uint32_t sequence, uint32_t head, int64_t i, int64_t group, __mmask16 keep[4]) {
  const __m512i rows = _mm512_add_epi32(_mm512_set1_epi32(int32_t(i)), lane_numbers());
  __m512i words[4];
  philox_16(p.key, _mm512_set1_epi32(int32_t(sequence)), _mm512_set1_epi32(int32_t(head)), rows, _mm512_set1_epi32(int32_t(group)), words);
  for (int w = 0; w < 4; w++) keep[w] = _mm512_cmpge_epu32_mask(words[w], _mm512_set1_epi32(int32_t(p.drop_below)));
}

}  // namespace
}  // namespace wyvern::isa
