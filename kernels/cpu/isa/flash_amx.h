// What flash.cpp (baseline instructions, checked types) hands to the matrix-unit code (its own instruction set, raw
// pointers only, so that no shared inline function is compiled there).
#pragma once
#include <cstdint>

namespace wyvern::isa {

// Element (n, head, d) of bf16 heads inside a wider matrix: data[n * stride + head * D + d].
template <class U> struct FlashColumns {
  U* data = nullptr;
  int64_t stride = 0;
};

struct FlashProblem {
  int64_t H, Hkv, D, T, window;            // window 0: none
  float scale, softcap;                    // softcap 0: none
  uint32_t drop_below;                     // a key is dropped when its Philox word is below this; 0: no dropout
  float keep;                              // 1 / (1 - dropout)
  uint64_t key;
  int64_t first_sequence, first_head;
  const int32_t* doc_starts;               // docs + 1 row offsets; documents never cross a sequence
  int64_t docs, longest;                   // longest: rows of the longest document
  FlashColumns<const uint16_t> q, k, v;
  FlashColumns<uint16_t> out;              // written by forward, read by backward
  float* lse;                              // (N, H); written by forward, read by backward
  FlashColumns<const uint16_t> dout;
  FlashColumns<uint16_t> dq, dk, dv;
  int threads;
  char* const* scratch;                    // one 64-byte aligned buffer per thread, of the size below
};

int64_t flash_forward_scratch(const FlashProblem&);    // bytes per thread
int64_t flash_backward_scratch(const FlashProblem&);
void flash_forward_amx(const FlashProblem&);
void flash_backward_amx(const FlashProblem&);

}  // namespace wyvern::isa
