#ifdef __AVX2__
#include <immintrin.h>

#include <cstdint>

namespace wyvern::isa {
namespace {

using Vec = __m256;
constexpr int64_t kLanes = 8, kVectors = 2;              // 12 sums, 2 of B, 1 of A: 15 of 16 registers
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec multiply_add(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

}  // namespace
}  // namespace wyvern::isa

#include "kernels/cpu/isa/gemm_f32.inl"

namespace wyvern::isa {
const GemmUnit kGemmAvx2 = {kColumns, 4, choose_blocks, scratch_bytes, pack_b, run_task, nullptr};
}  // namespace wyvern::isa
#endif
