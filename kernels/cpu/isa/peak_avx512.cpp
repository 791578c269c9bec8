#ifdef __AVX512F__
#include <immintrin.h>

#include "kernels/cpu/isa/peak_loops.h"

namespace wyvern::isa {

double spin_avx512(int64_t rounds) {
  constexpr int kChains = 12;                            // two units with a latency of four or five
  __m512 x[kChains];
  __m512 factor = _mm512_set1_ps(0.999f);
  for (int i = 0; i < kChains; i++) x[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; i++) x[i] = _mm512_fmadd_ps(x[i], factor, factor);
    asm volatile("" : "+v"(factor));
  }
  for (int i = 0; i < kChains; i++) asm volatile("" ::"v"(x[i]));
  return static_cast<double>(rounds) * kChains * 2 * 16;
}

}  // namespace wyvern::isa
#endif
