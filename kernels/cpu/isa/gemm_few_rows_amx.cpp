// A few rows times a transposed B on the matrix unit: C^T = B A^T. The stored rows of B are A tiles as they lie, so B goes
// from memory into the unit; only the few rows are packed. Sums over k in the order of gemm_amx.cpp.
#ifdef __AMX_BF16__
#include "kernels/cpu/isa/gemm_amx_pack.inl"

namespace wyvern::isa {
namespace {

constexpr int64_t kStripe = 32;                          // columns of C at a time: two tiles

// Two tiles of B that reach over its edge, copied with zeros around.
void copy_edge(uint16_t* tiles, const Stored& b, int64_t n, int64_t k) {
  pack_rows(tiles, b, n, k);
  pack_rows(tiles + kTile, b, n + 16, k);
}

// sums[column][row], kStripe x 16.
void multiply_stripe(const Stored& b, const uint16_t* rows, int64_t n, float* sums) {
  alignas(64) uint16_t edge[2 * kTile];
  const bool whole = n + kStripe <= b.rows;
  const int64_t stride = b.ld * 2;
  TILE_ZERO(0);
  TILE_ZERO(1);
  for (int64_t k = 0; k < b.columns; k += 32) {
    TILE_LOAD(4, rows + k * kFewRows, kTileBytes);
    if (whole && k + 32 <= b.columns) {
      const uint16_t* first = b.data + n * b.ld + k;
      for (int64_t i = 0; i < kStripe; i++) _mm_prefetch(first + i * b.ld + 512, _MM_HINT_T0);
      TILE_LOAD(5, first, stride);
      TILE_LOAD(6, first + 16 * b.ld, stride);
    } else {
      copy_edge(edge, b, n, k);
      TILE_LOAD(5, edge, kTileBytes);
      TILE_LOAD(6, edge + kTile, kTileBytes);
    }
    TILE_DOT(0, 5, 4);
    TILE_DOT(1, 6, 4);
  }
  TILE_STORE(0, sums, 64);
  TILE_STORE(1, sums + 256, 64);
}

// 16 columns of all rows.
void store_columns(const GemmCall& c, const float* sums, int64_t n) {
  __m512i t[16];
  for (int64_t i = 0; i < 16; i++) t[i] = _mm512_load_si512(sums + i * 16);
  transpose_16x16(t);
  const auto columns = static_cast<__mmask16>(first_lanes(min_of(16, c.N - n)));
  __m512 bias = _mm512_setzero_ps();
  if (c.bias) bias = to_float(_mm256_maskz_loadu_epi16(columns, static_cast<const uint16_t*>(c.bias) + n));
  for (int64_t m = 0; m < c.M; m++) {
    const __m512 x = _mm512_add_ps(_mm512_castsi512_ps(t[m]), bias);
    const int64_t at = m * c.ldc + n;
    if (c.bf16_out) _mm256_mask_storeu_epi16(static_cast<uint16_t*>(c.c) + at, columns, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    else _mm512_mask_storeu_ps(static_cast<float*>(c.c) + at, columns, x);
  }
}

}  // namespace

void pack_few_rows_amx(const GemmCall& c, uint16_t* rows_packed) {
  const Stored a = stored_a(c);
  for (int64_t k = 0; k < c.K; k += 32) pack_rows_transposed(rows_packed + k * kFewRows, a, 0, k);
}

void multiply_few_rows_amx(const GemmCall& c, const uint16_t* rows_packed, int64_t n0, int64_t n1) {
  alignas(64) float sums[kStripe * kFewRows];
  const Stored b = stored_b(c);
  tile_configure();
  for (int64_t n = n0; n < n1; n += kStripe) {
    multiply_stripe(b, rows_packed, n, sums);
    store_columns(c, sums, n);
    if (n + 16 < n1) store_columns(c, sums + 256, n + 16);
  }
  tile_release();
}

}  // namespace wyvern::isa
#endif
