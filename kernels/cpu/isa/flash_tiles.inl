// Matrix-unit building blocks of flash attention: tile macros, packers, a 2 x 2 block product, exp2, dropout masks. Included
// by the *_amx.cpp files only; everything is static, so nothing compiled here is shared with other files.
//
// A tile is 1 KiB, 512 bf16. An A tile holds 16 rows x 32 k, row-major. A B tile holds 32 k x 16 columns as [k / 2][column][k % 2].
// tdpbf16ps adds A * B to a 16 x 16 f32 tile.
#pragma once
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"      // gcc 12's own AVX-512 headers (PR 105593)
#endif
#include <immintrin.h>
#include <omp.h>

#include <cstdint>

// Own asm: gcc's tile intrinsics declare neither the memory they touch nor the whole of the configuration.
#define TILE_LOAD(t, p, stride) asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void*)(p)), "r"((long)(stride)) : "memory")
#define TILE_STORE(t, p, stride) asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void*)(p)), "r"((long)(stride)) : "memory")
#define TILE_DOT(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_ZERO(t) asm volatile("tilezero %%tmm" #t ::)

namespace wyvern::isa {
namespace {

constexpr int64_t kTile = 512;             // bf16 elements of a tile
constexpr int64_t kTileBytes = 64;         // row stride inside a packed tile
constexpr float kLog2e = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

inline int64_t round_up(int64_t n, int64_t m) { return (n + m - 1) / m * m; }
inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

// All eight tiles are 16 rows of 64 bytes. Per thread; undone by tile_release.
inline void tile_configure() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
inline void tile_release() { asm volatile("tilerelease"); }

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
[[gnu::always_inline]] inline void multiply_2x2(int64_t steps, const uint16_t* a0, const uint16_t* a1, int64_t a_step, const uint16_t* b0,
                                                const uint16_t* b1, int64_t b_step, float* c, int64_t ldc, bool accumulate) {
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

// ---- packers: a source of `rows` x D bf16 with row stride ld; what lies beyond it is packed as zeros -----------------------
inline __m512i load_row(const uint16_t* src, int64_t ld, int64_t row, int64_t rows, int64_t column, int64_t D) {   // 32 columns
  if (row >= rows || column >= D) return _mm512_setzero_si512();
  const int64_t left = D - column;
  return _mm512_maskz_loadu_epi16(left >= 32 ? 0xffffffffu : (1u << left) - 1u, src + row * ld + column);
}
inline __m512i interleave_index() {
  return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
}
// Two rows of 16 columns as 16 (row, row + 1) pairs. D is a multiple of 16.
inline __m512i load_pair(const uint16_t* src, int64_t ld, int64_t row, int64_t rows, int64_t column, int64_t D) {
  __m256i a = _mm256_setzero_si256(), b = a;
  if (row < rows && column < D) a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + row * ld + column));
  if (row + 1 < rows && column < D) b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + (row + 1) * ld + column));
  return _mm512_permutexvar_epi16(interleave_index(), _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
}
inline void transpose_16x16(__m512i r[16]) {           // of 32-bit elements
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// A tiles of the source: [rows / 16][D / 32].
inline void pack_a(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t first, int64_t count, int64_t rows, int64_t D) {
  for (int64_t r0 = first; r0 < first + count; r0 += 16)
    for (int64_t d = 0; d < D; d += 32, dst += kTile)
      for (int64_t r = 0; r < 16; r++) _mm512_store_si512(dst + r * 32, load_row(src, ld, r0 + r, rows, d, D));
}
// A tiles of the transposed source (tile rows are columns, k are rows): [D / 16][rows / 32].
inline void pack_a_transposed(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t padded, int64_t rows, int64_t D) {
  for (int64_t d = 0; d < round_up(D, 32); d += 16)
    for (int64_t r0 = 0; r0 < padded; r0 += 32, dst += kTile) {
      __m512i t[16];
      for (int64_t i = 0; i < 16; i++) t[i] = load_pair(src, ld, r0 + 2 * i, rows, d, D);
      transpose_16x16(t);
      for (int64_t i = 0; i < 16; i++) _mm512_store_si512(dst + i * 32, t[i]);
    }
}
// B tiles of the source (k are rows, tile columns are columns): [D / 16][rows / 32].
inline void pack_b(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t padded, int64_t rows, int64_t D) {
  for (int64_t d = 0; d < round_up(D, 32); d += 16)
    for (int64_t r0 = 0; r0 < padded; r0 += 32, dst += kTile)
      for (int64_t i = 0; i < 16; i++) _mm512_store_si512(dst + i * 32, load_pair(src, ld, r0 + 2 * i, rows, d, D));
}
// B tiles of the transposed source (k are columns, tile columns are rows): [rows / 16][D / 32].
inline void pack_b_transposed(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t padded, int64_t rows, int64_t D) {
  for (int64_t r0 = 0; r0 < padded; r0 += 16)
    for (int64_t d = 0; d < D; d += 32, dst += kTile) {
      __m512i t[16];
      for (int64_t i = 0; i < 16; i++) t[i] = load_row(src, ld, r0 + i, rows, d, D);
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
inline __m512i to_bf16(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
// Bits [begin, end) of 16; both ends may lie outside.
inline __mmask16 lanes(int64_t begin, int64_t end) {
  const uint32_t b = uint32_t(max_of(0, min_of(begin, 16))), e = uint32_t(max_of(0, min_of(end, 16)));
  return __mmask16(((1u << e) - 1u) & ~((1u << b) - 1u));
}

// ---- dropout ---------------------------------------------------------------------------------------------------------------
// Philox4x32-10 on 16 counters at once (kernels/base/philox.h); word w of counter l is lane l of words[w].
inline void philox_16(uint64_t key, __m512i a, __m512i b, __m512i c, __m512i d, __m512i words[4]) {
  const __m512i ma = _mm512_set1_epi32(int32_t(0xD2511F53u)), mc = _mm512_set1_epi32(int32_t(0xCD9E8D57u));
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  const __mmask16 odd = 0xaaaa;
  for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const __m512i pe = _mm512_mul_epu32(ma, a), po = _mm512_mul_epu32(ma, _mm512_srli_epi64(a, 32));
    const __m512i qe = _mm512_mul_epu32(mc, c), qo = _mm512_mul_epu32(mc, _mm512_srli_epi64(c, 32));
    const __m512i p_high = _mm512_mask_mov_epi32(_mm512_srli_epi64(pe, 32), odd, po), p_low = _mm512_mask_mov_epi32(pe, odd, _mm512_slli_epi64(po, 32));
    const __m512i q_high = _mm512_mask_mov_epi32(_mm512_srli_epi64(qe, 32), odd, qo), q_low = _mm512_mask_mov_epi32(qe, odd, _mm512_slli_epi64(qo, 32));
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
