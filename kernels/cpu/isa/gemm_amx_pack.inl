// Packing for the matrix unit, a tile at a time. Loads are masked at the edges of the matrices: beyond them nothing is read
// and zeros are packed.
#pragma once
#include "kernels/cpu/isa/gemm_unit.h"
#include "kernels/cpu/isa/tiles.inl"

namespace wyvern::isa {
namespace {

// A matrix by its stored rows: element (row, column) at data[row * ld + column], inside rows x columns.
struct Stored {
  const uint16_t* data;
  int64_t ld, rows, columns;
};
inline Stored stored_a(const GemmCall& c) {
  return {static_cast<const uint16_t*>(c.a), c.lda, c.transpose_a ? c.K : c.M, c.transpose_a ? c.M : c.K};
}
inline Stored stored_b(const GemmCall& c) {
  return {static_cast<const uint16_t*>(c.b), c.ldb, c.transpose_b ? c.N : c.K, c.transpose_b ? c.K : c.N};
}

inline __m512i row_of_32(const Stored& s, int64_t row, __mmask32 columns, int64_t column) {
  if (row >= s.rows) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(columns, s.data + row * s.ld + column);
}
inline __m256i row_of_16(const Stored& s, int64_t row, __mmask16 columns, int64_t column) {
  if (row >= s.rows) return _mm256_setzero_si256();
  return _mm256_maskz_loadu_epi16(columns, s.data + row * s.ld + column);
}
inline __m512i pair_of_rows(const Stored& s, int64_t row, int64_t column) {
  const auto columns = static_cast<__mmask16>(first_lanes(s.columns - column));
  return interleave(row_of_16(s, row, columns, column), row_of_16(s, row + 1, columns, column));
}

// 16 stored rows x 32 columns as they lie: an A tile of A.
inline void pack_rows(uint16_t* tile, const Stored& s, int64_t row, int64_t column) {
  const __mmask32 columns = first_lanes(s.columns - column);
  for (int64_t i = 0; i < 16; i++) _mm512_store_si512(tile + i * 32, row_of_32(s, row + i, columns, column));
}
// 16 stored rows x 32 columns as 16 x 16 pairs, transposed: a B tile of B^T.
inline void pack_rows_transposed(uint16_t* tile, const Stored& s, int64_t row, int64_t column) {
  const __mmask32 columns = first_lanes(s.columns - column);
  __m512i t[16];
  for (int64_t i = 0; i < 16; i++) t[i] = row_of_32(s, row + i, columns, column);
  transpose_16x16(t);
  for (int64_t i = 0; i < 16; i++) _mm512_store_si512(tile + i * 32, t[i]);
}
// 32 stored rows x 16 columns, rows taken in pairs: a B tile of B.
inline void pack_pairs(uint16_t* tile, const Stored& s, int64_t row, int64_t column) {
  for (int64_t i = 0; i < 16; i++) _mm512_store_si512(tile + i * 32, pair_of_rows(s, row + 2 * i, column));
}
// The same transposed: an A tile of A^T.
inline void pack_pairs_transposed(uint16_t* tile, const Stored& s, int64_t row, int64_t column) {
  __m512i t[16];
  for (int64_t i = 0; i < 16; i++) t[i] = pair_of_rows(s, row + 2 * i, column);
  transpose_16x16(t);
  for (int64_t i = 0; i < 16; i++) _mm512_store_si512(tile + i * 32, t[i]);
}

}  // namespace
}  // namespace wyvern::isa
