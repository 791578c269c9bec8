#include "kernels/reduce.h"

#include <vector>

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/ranges.h"

namespace wyvern::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;      // fixed partition: the sum does not depend on who adds which piece

// Eight partial sums, so that the loop can run in vectors.
template <class T, class F> double add_up(const T* p, int64_t n, F&& term) {
  double lane[8] = {};
  int64_t j = 0;
  for (; j + 8 <= n; j += 8)
    for (int64_t l = 0; l < 8; l++) lane[l] += term(double(acc_t<T>(p[j + l])));
  for (; j < n; j++) lane[0] += term(double(acc_t<T>(p[j])));
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

template <class F> double piecewise(const Tensor& x, F&& piece) {
  const int64_t n = x.numel();
  std::vector<double> part(size_t((n + kPiece - 1) / kPiece), 0.0);
  with_float(x.dtype, [&]<class T>(T) {
    const T* p = as<T>(x);
    for_ranges(n, [&](int64_t b, int64_t e) { part[size_t(b / kPiece)] = piece(p + b, e - b); }, kPiece);
  });
  double total = 0;
  for (double v : part) total += v;
  return total;
}

}  // namespace

void sum_squares(Stream&, const SumSquares& a) {
  *a.out += piecewise(a.x, []<class T>(const T* p, int64_t n) {
    if constexpr (kIsDouble<T>) return add_up(p, n, [](double v) { return v * v; });
    else return isa::rows<T>().sum_squares(p, n);
  });
}
void sum(Stream&, const Sum& a) {
  *a.out += piecewise(a.x, [](const auto* p, int64_t n) { return add_up(p, n, [](double v) { return v; }); });
}

}  // namespace wyvern::cpu
