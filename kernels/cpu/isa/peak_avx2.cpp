#ifdef __AVX2__
#include <immintrin.h>

#include "kernels/cpu/isa/peak_loops.h"

namespace wyvern::isa {

double spin_avx2(int64_t rounds) {
  constexpr int kChains = 12;                            // two units with a latency of four or five
  __m256 x[kChains];
  __m256 factor = _mm256_set1_ps(0.999f);
  for (int i = 0; i < kChains; i++) x[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; i++) x[i] = _mm256_fmadd_ps(x[i], factor, factor);
    asm volatile("" : "+x"(factor));
  }
  for (int i = 0; i < kChains; i++) asm volatile("" ::"x"(x[i]));
  return static_cast<double>(rounds) * kChains * 2 * 8;
}

}  // namespace wyvern::isa
#endif
