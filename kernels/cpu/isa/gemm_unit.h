// What gemm.cpp (baseline instructions: threads, memory, order of blocks) and the instruction-set files (packing, inner
// kernels; raw pointers only, so that no shared inline function is compiled there) agree on.
//
// op(B) is packed into blocks of kc x nc, each a row of panels of `panel` columns: [column / panel][kc][panel] up to the order
// of elements inside a panel, which is the unit's own. The blocks of one column range follow each other by k. A task is mc rows
// times one column range; it walks k in order, so every element of C is one chain of sums. Its rows of op(A) it packs itself,
// unless the unit wants a transposed A packed beforehand.
#pragma once
#include <cstdint>

namespace wyvern::isa {

struct GemmCall {
  int64_t M, N, K;
  const void* a; int64_t lda; bool transpose_a;
  const void* b; int64_t ldb; bool transpose_b;
  void* c; int64_t ldc;
  const void* bias;
  bool accumulate;
  bool bf16_in, bf16_out;
  bool stream;                   // C is too large for the caches: write it past them
  int64_t mc, nc, kc;            // nc a multiple of the unit's panel, all >= 1
};

struct GemmUnit {
  int64_t panel;                 // columns
  int64_t element_bytes;         // of packed operands
  // Fills in mc, nc, kc. kc depends on K and transpose_a alone.
  void (*choose_blocks)(GemmCall*, int threads);
  int64_t (*scratch_bytes)(const GemmCall&);                   // per thread
  // Panels from column n0 on, rows [k0, k0 + kc) of op(B); zeros beyond N, and beyond K as far as the unit reads them.
  void (*pack_b)(const GemmCall&, int64_t k0, int64_t n0, int64_t panels, void* to);
  // C of rows [m0, m0 + mc) and columns [n0, n0 + nc), cut at M and N. packed_a: these rows, or null.
  void (*run_task)(const GemmCall&, int64_t m0, int64_t n0, const void* packed_a, const void* packed_b, void* scratch);
  // Null, or packs k [k0, k0 + 32) of rows [m0, m0 + rows) of a transposed A; `to` holds all k of these rows, K rounded up to 32.
  void (*pack_a)(const GemmCall&, int64_t m0, int64_t rows, int64_t k0, void* to);
};

extern const GemmUnit kGemmAvx2, kGemmAvx512, kGemmAmx;

// A few rows against a transposed B, C written anew (generation): B is read once, in place, and never packed. rows_packed
// holds kFewRows * round_up(K, 32) elements; a call does columns [n0, n1). Sums are the same bits as kGemmAmx's.
constexpr int64_t kFewRows = 16;
void pack_few_rows_amx(const GemmCall&, uint16_t* rows_packed);
void multiply_few_rows_amx(const GemmCall&, const uint16_t* rows_packed, int64_t n0, int64_t n1);

}  // namespace wyvern::isa
