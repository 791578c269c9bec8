#ifdef __AVX512F__
#include <immintrin.h>

#include <cstdint>

namespace wyvern::isa {
namespace {

using Vec = __m512;
constexpr int64_t kLanes = 16, kVectors = 4;             // 24 sums, 4 of B, 1 of A: 29 of 32 registers
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec multiply_add(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

}  // namespace
}  // namespace wyvern::isa

#include "kernels/cpu/isa/gemm_f32.inl"

namespace wyvern::isa {
const GemmUnit kGemmAvx512 = {kColumns, 4, choose_blocks, scratch_bytes, pack_b, run_task, nullptr};
}  // namespace wyvern::isa
#endif
