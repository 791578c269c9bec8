// for_ranges: cuts [0, n) into pieces of a fixed size and hands them to the OpenMP threads. The pieces do not depend on how many
// threads there are.
#pragma once
#include <cstdint>

namespace wyvern::cpu {

template <class F> void for_ranges(int64_t n, F&& run, int64_t piece = 1 << 14) {
  const int64_t pieces = (n + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (int64_t i = 0; i < pieces; i++) run(i * piece, (i + 1) * piece < n ? (i + 1) * piece : n);
}

template <class T> inline constexpr bool kIsDouble = false;      // F64 models run the plain loops; f32 and bf16 the row kernels
template <> inline constexpr bool kIsDouble<double> = true;

}  // namespace wyvern::cpu
