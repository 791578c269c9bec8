// Element types. f64 is a whole-model compute type (gradient checks), not only an accumulator.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/base/check.h"

namespace wyvern {

enum class DType : uint8_t { f64, f32, bf16, i32, u16 };

inline int64_t bytes_of(DType d) {
  switch (d) {
    case DType::f64: return 8;
    case DType::f32: case DType::i32: return 4;
    case DType::bf16: case DType::u16: return 2;
  }
  return 0;
}
inline const char* name_of(DType d) {
  switch (d) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::u16: return "u16";
  }
  return "?";
}

// bfloat16 storage: the upper half of an f32. Rounds to nearest even; NaN stays NaN (quiet).
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float x) {  // NOLINT: implicit on purpose, like a cast between floating types
    uint32_t u = std::bit_cast<uint32_t>(x);
    bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }  // NOLINT
};
static_assert(sizeof(bf16) == 2 && std::is_trivially_copyable_v<bf16>);

// What sums, statistics, losses and gradients are held in: f64 in an F64 model, f32 otherwise.
template <class T> using acc_t = std::conditional_t<std::is_same_v<T, double>, double, float>;
inline DType acc_of(DType d) { return d == DType::f64 ? DType::f64 : DType::f32; }

template <class T> inline constexpr DType dtype_of = DType::f32;
template <> inline constexpr DType dtype_of<double> = DType::f64;
template <> inline constexpr DType dtype_of<bf16> = DType::bf16;
template <> inline constexpr DType dtype_of<int32_t> = DType::i32;
template <> inline constexpr DType dtype_of<uint16_t> = DType::u16;

// Calls fn(T{}) with the C++ type of a floating dtype: with_float(x.dtype, [&]<class T>(T) { ... });
template <class F> decltype(auto) with_float(DType d, F&& fn) {
  switch (d) {
    case DType::f64: return fn(double{});
    case DType::f32: return fn(float{});
    case DType::bf16: return fn(bf16{});
    default: throw Error(kRuntime, fmt::format("bug: {} is not a floating type", name_of(d)));
  }
}

}  // namespace wyvern
