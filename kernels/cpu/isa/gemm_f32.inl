// GEMM by f32 multiply-adds: kRows x kColumns of C in registers, op(A) packed in panels [k][kRows], op(B) in panels
// [k][kColumns], both as f32 whatever they were. Included by gemm_f32_avx512.cpp and gemm_f32_avx2.cpp, which define before:
//   Vec, kLanes, kVectors (of Vec in a row of the register block), load, store, zero, splat, multiply_add
// Everything here is in an anonymous namespace: one copy for each instruction set.
#pragma once
#include "kernels/cpu/isa/gemm_unit.h"

namespace wyvern::isa {
namespace {

constexpr int64_t kRows = 6, kColumns = kLanes * kVectors;
constexpr int64_t kBlockK = 256;                         // a panel of A: 6 KiB of L1
constexpr int64_t kBlockRows = 240;                      // a block of A: 240 KiB of L2
constexpr int64_t kBlockColumns = 768;

inline int64_t round_up(int64_t n, int64_t m) { return (n + m - 1) / m * m; }
inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

inline float to_float(float x) { return x; }
inline float to_float(uint16_t bits) {                   // bf16
  const uint32_t u = static_cast<uint32_t>(bits) << 16;
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
inline uint16_t to_bf16(float x) {                       // to nearest even; NaN stays NaN
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(u >> 16 | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// c (kRows x kColumns) = or += a * b over k.
inline void multiply_block(const float* a, const float* b, int64_t k, float* c, int64_t ldc, bool add) {
  Vec sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; r++)
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; v++) sum[r][v] = add ? load(c + r * ldc + v * kLanes) : zero();
  for (; k > 0; k--, a += kRows, b += kColumns) {
    Vec row[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; v++) row[v] = load(b + v * kLanes);
#pragma GCC unroll 6
    for (int64_t r = 0; r < kRows; r++) {
      const Vec x = splat(a[r]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; v++) sum[r][v] = multiply_add(x, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; r++)
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; v++) store(c + r * ldc + v * kLanes, sum[r][v]);
}

// The same where only rows x columns of the block exist in C.
void multiply_edge(const float* a, const float* b, int64_t k, float* c, int64_t ldc, bool add, int64_t rows, int64_t columns) {
  alignas(64) float whole[kRows * kColumns] = {};
  if (add)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t n = 0; n < columns; n++) whole[r * kColumns + n] = c[r * ldc + n];
  multiply_block(a, b, k, whole, kColumns, add);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < columns; n++) c[r * ldc + n] = whole[r * kColumns + n];
}

// ---- packing ---------------------------------------------------------------------------------------------------------------

// Stored rows that hold `width` neighbours of a panel for one k: copied. Beyond `valid` zeros.
template <class T> void pack_along(float* to, const T* from, int64_t ld, int64_t k, int64_t width, int64_t valid) {
  for (; k > 0; k--, from += ld, to += width) {
    int64_t i = 0;
    if (valid == width)
      for (; i < width; i++) to[i] = to_float(from[i]);
    for (; i < valid; i++) to[i] = to_float(from[i]);
    for (; i < width; i++) to[i] = 0;
  }
}
// Stored rows that hold all k of one neighbour: transposed, in stretches of k short enough that a stretch of the panel stays in L1.
template <class T> void pack_across(float* to, const T* from, int64_t ld, int64_t k, int64_t width, int64_t valid) {
  constexpr int64_t kStretch = 64;
  for (int64_t begin = 0; begin < k; begin += kStretch) {
    const int64_t end = min_of(begin + kStretch, k);
    for (int64_t i = 0; i < width; i++)
      for (int64_t j = begin; j < end; j++) to[j * width + i] = i < valid ? to_float(from[i * ld + j]) : 0.0f;
  }
}
// What a panel is packed from: k [k0, k0 + k) of `width` neighbours from `first` on. A stored row holds one k of them, or all k of one.
struct Source {
  const void* matrix;
  int64_t ld;
  bool row_of_k;
  int64_t k0, k, first, width, valid;
};
template <class T> void pack_panel(float* to, const Source& s) {
  const T* from = static_cast<const T*>(s.matrix);
  if (s.row_of_k) pack_along(to, from + s.k0 * s.ld + s.first, s.ld, s.k, s.width, s.valid);
  else pack_across(to, from + s.first * s.ld + s.k0, s.ld, s.k, s.width, s.valid);
}
void pack(const GemmCall& c, float* to, const Source& s) {
  if (c.bf16_in) pack_panel<uint16_t>(to, s);
  else pack_panel<float>(to, s);
}

void pack_b(const GemmCall& c, int64_t k0, int64_t n0, int64_t panels, void* to) {
  const int64_t k = min_of(c.kc, c.K - k0);
  for (int64_t p = 0; p < panels; p++) {
    const int64_t n = n0 + p * kColumns;
    pack(c, static_cast<float*>(to) + p * c.kc * kColumns, {c.b, c.ldb, !c.transpose_b, k0, k, n, kColumns, min_of(kColumns, c.N - n)});
  }
}

// ---- a task: mc x nc of C --------------------------------------------------------------------------------------------------

// Where a task's sums are: in an f32 C, or in scratch until they are rounded to a bf16 C.
struct Sums {
  float* data;
  int64_t ld;
};

// What the sums start from, unless from zero.
bool begin_sums(const GemmCall& c, const Sums& s, int64_t m0, int64_t rows, int64_t n0, int64_t columns) {
  if (!c.bias && !(c.accumulate && c.bf16_out)) return c.accumulate;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < columns; n++) {
      float& x = s.data[r * s.ld + n];
      if (!c.bias) x = to_float(static_cast<const uint16_t*>(c.c)[(m0 + r) * c.ldc + n0 + n]);
      else x = c.bf16_in ? to_float(static_cast<const uint16_t*>(c.bias)[n0 + n]) : static_cast<const float*>(c.bias)[n0 + n];
    }
  return true;
}

void round_sums(const GemmCall& c, const Sums& s, int64_t m0, int64_t rows, int64_t n0, int64_t columns) {
  for (int64_t r = 0; r < rows; r++) {
    uint16_t* to = static_cast<uint16_t*>(c.c) + (m0 + r) * c.ldc + n0;
    for (int64_t n = 0; n < columns; n++) to[n] = to_bf16(s.data[r * s.ld + n]);
  }
}

void run_task(const GemmCall& c, int64_t m0, int64_t n0, const void*, const void* packed_b, void* scratch) {
  const int64_t rows = min_of(c.mc, c.M - m0), columns = min_of(c.nc, c.N - n0);
  float* a = static_cast<float*>(scratch);
  const Sums sums = c.bf16_out ? Sums{a + c.mc * c.kc, c.nc} : Sums{static_cast<float*>(c.c) + m0 * c.ldc + n0, c.ldc};
  bool add = begin_sums(c, sums, m0, rows, n0, columns);
  for (int64_t k0 = 0; k0 < c.K; k0 += c.kc, add = true) {
    const int64_t k = min_of(c.kc, c.K - k0);
    for (int64_t r = 0; r < rows; r += kRows)
      pack(c, a + r * k, {c.a, c.lda, c.transpose_a, k0, k, m0 + r, kRows, min_of(kRows, rows - r)});
    for (int64_t n = 0; n < columns; n += kColumns) {
      const float* b = static_cast<const float*>(packed_b) + k0 * c.nc + n * c.kc;
      for (int64_t r = 0; r < rows; r += kRows) {
        float* to = sums.data + r * sums.ld + n;
        if (rows - r >= kRows && columns - n >= kColumns) multiply_block(a + r * k, b, k, to, sums.ld, add);
        else multiply_edge(a + r * k, b, k, to, sums.ld, add, min_of(kRows, rows - r), min_of(kColumns, columns - n));
      }
    }
  }
  if (c.bf16_out) round_sums(c, sums, m0, rows, n0, columns);
}

void choose_blocks(GemmCall* c, int threads) {
  c->kc = min_of(c->K, kBlockK);
  const int64_t n_blocks = (c->N + kBlockColumns - 1) / kBlockColumns;
  c->nc = round_up((c->N + n_blocks - 1) / n_blocks, kColumns);
  const int64_t m_blocks = max_of((c->M + kBlockRows - 1) / kBlockRows, (4 * threads + n_blocks - 1) / n_blocks);
  c->mc = round_up((c->M + m_blocks - 1) / m_blocks, kRows);
}
int64_t scratch_bytes(const GemmCall& c) { return (c.mc * c.kc + (c.bf16_out ? c.mc * c.nc : 0)) * 4; }

}  // namespace
}  // namespace wyvern::isa
