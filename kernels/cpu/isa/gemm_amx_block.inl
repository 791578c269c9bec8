// The inner block of gemm_amx.cpp, 48 x 32 of C, and the two jobs that are done between its tile products.
#pragma once
#include "kernels/cpu/isa/gemm_amx_pack.inl"

namespace wyvern::isa {
namespace {

constexpr int64_t kRows = 48, kColumns = 32;             // of a block
constexpr int64_t kBlock = kRows * kColumns;             // f32 elements of a block kept outside C
constexpr int64_t kRowTiles = kRows / 16;
constexpr int64_t kBlockStride = kColumns * 4;           // bytes

// A finished block on its way to C, some rows at a time.
struct Leaving {
  const float* from = nullptr;
  const float* bias = nullptr;     // kColumns, zeros without a bias
  char* to = nullptr;
  int64_t stride = 0;              // bytes
  int64_t row = 0, rows = 0;
  __mmask32 columns = 0;
  bool half = false;               // bf16, else f32
  bool add = false;                // to what is there: bf16 only, f32 sums start from it
  bool stream = false;
};

[[gnu::always_inline]] inline void store_row(Leaving& s) {
  const float* x = s.from + s.row * kColumns;
  char* to = s.to + s.row * s.stride;
  __m512 low = _mm512_add_ps(_mm512_load_ps(x), _mm512_loadu_ps(s.bias));
  __m512 high = _mm512_add_ps(_mm512_load_ps(x + 16), _mm512_loadu_ps(s.bias + 16));
  if (s.half) {
    if (s.add) {
      const __m512i old = _mm512_maskz_loadu_epi16(s.columns, to);
      low = _mm512_add_ps(low, to_float(_mm512_castsi512_si256(old)));
      high = _mm512_add_ps(high, to_float(_mm512_extracti64x4_epi64(old, 1)));
    }
    const __m512i y = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    if (s.stream) _mm512_stream_si512(reinterpret_cast<__m512i*>(to), y);
    else _mm512_mask_storeu_epi16(to, s.columns, y);
  } else if (s.stream) {
    _mm512_stream_ps(reinterpret_cast<float*>(to), low);
    _mm512_stream_ps(reinterpret_cast<float*>(to) + 16, high);
  } else {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(s.columns), low);
    _mm512_mask_storeu_ps(to + 64, static_cast<__mmask16>(s.columns >> 16), high);
  }
  s.row++;
}
[[gnu::always_inline]] inline void store_rows(Leaving& s, int64_t n) {
  for (; n > 0 && s.row < s.rows; n--) store_row(s);
}

// A panel being packed from rows of A as they lie: a block of k of 48 rows, [k / 32][3] tiles. It goes by a few rows of a tile
// at a time, because tile loads wait for stores with the same low address bits.
struct Packing {
  uint16_t* to = nullptr;
  int64_t m0 = 0, k0 = 0;
  int64_t steps = 0;               // k tiles
  int64_t step = 0, row = 0;       // the next one
  int64_t left = 0;                // parts to do
};
constexpr int64_t kPartRows = 2;
constexpr int64_t kPartsPerStep = kRows / kPartRows;

[[gnu::always_inline]] inline void pack_next(Packing& p, const Stored& a) {
  constexpr int64_t kAhead = 2;                          // steps; behind the last step comes the first of the next 48 rows
  const int64_t k = p.k0 + p.step * 32;
  const bool wraps = p.step + kAhead >= p.steps;
  const uint16_t* next = a.data + (p.m0 + p.row + (wraps ? kRows : 0)) * a.ld + k + (kAhead - (wraps ? p.steps : 0)) * 32;
  const __mmask32 columns = first_lanes(a.columns - k);
  uint16_t* to = p.to + p.step * kRowTiles * kTile + p.row * 32;
  for (int64_t i = 0; i < kPartRows; i++) {
    _mm512_store_si512(to + i * 32, row_of_32(a, p.m0 + p.row + i, columns, k));
    _mm_prefetch(next + i * a.ld, _MM_HINT_T1);
  }
  p.left--;
  p.row += kPartRows;
  if (p.row == kRows) p.row = 0, p.step++;
}

[[gnu::always_inline]] inline void load_block(const char* c, int64_t stride) {
  TILE_LOAD(0, c, stride);
  TILE_LOAD(1, c + 64, stride);
  TILE_LOAD(2, c + 16 * stride, stride);
  TILE_LOAD(3, c + 16 * stride + 64, stride);
  TILE_LOAD(4, c + 32 * stride, stride);
  TILE_LOAD(5, c + 32 * stride + 64, stride);
}
[[gnu::always_inline]] inline void store_block(char* c, int64_t stride) {
  TILE_STORE(0, c, stride);
  TILE_STORE(1, c + 64, stride);
  TILE_STORE(2, c + 16 * stride, stride);
  TILE_STORE(3, c + 16 * stride + 64, stride);
  TILE_STORE(4, c + 32 * stride, stride);
  TILE_STORE(5, c + 32 * stride + 64, stride);
}
[[gnu::always_inline]] inline void clear_block() {
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  TILE_ZERO(4);
  TILE_ZERO(5);
}
[[gnu::always_inline]] inline void dot_step(const uint16_t* a, const uint16_t* b) {
  TILE_LOAD(6, a, kTileBytes);
  TILE_LOAD(7, b, kTileBytes);
  TILE_DOT(0, 6, 7);
  TILE_LOAD(7, b + kTile, kTileBytes);
  TILE_DOT(1, 6, 7);
  TILE_LOAD(6, a + kTile, kTileBytes);
  TILE_DOT(3, 6, 7);
  TILE_LOAD(7, b, kTileBytes);
  TILE_DOT(2, 6, 7);
  TILE_LOAD(6, a + 2 * kTile, kTileBytes);
  TILE_DOT(4, 6, 7);
  TILE_LOAD(7, b + kTile, kTileBytes);
  TILE_DOT(5, 6, 7);
}

// Where a block's sums start and end. `in` null: from zero.
struct Sums {
  const char* in;
  char* out;
  int64_t stride;                  // bytes, of both
  const char* next;                // C of the block after this one, not yet in the caches; null: nothing to bring
};

// One block: a panel of A times a panel of B over `steps` k tiles, with up to `parts` parts of packing and the leaving block's
// rows done on the side, spread over the steps: bunched into a few of them they cost a fifth of the time.
[[gnu::always_inline]] inline void multiply_block(const uint16_t* a, const uint16_t* b, int64_t steps, const Sums& sums, Leaving& leaving,
                                                  Packing& packing, const Stored& source, int64_t parts) {
  const int64_t rows_per_step = (kRows + steps - 1) / steps, left = max_of(0, packing.left - parts);
  const char* next = sums.next;
  if (sums.in) load_block(sums.in, sums.stride);
  else clear_block();
  for (int64_t k = 0; k < steps; k++) {
    dot_step(a, b);
    a += kRowTiles * kTile;
    b += 2 * kTile;
    if (packing.left > left) pack_next(packing, source);
    if (leaving.row < leaving.rows) store_rows(leaving, rows_per_step);
    if (next)
      for (int64_t i = 0; i < rows_per_step; i++, next += sums.stride) {
        _mm_prefetch(next, _MM_HINT_T0);
        _mm_prefetch(next + 64, _MM_HINT_T0);
      }
  }
  store_block(sums.out, sums.stride);                    // the leaving block may have been in the same place: all its rows are gone
  while (packing.left > left) pack_next(packing, source);
}

}  // namespace
}  // namespace wyvern::isa
