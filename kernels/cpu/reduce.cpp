#include "kernels/reduce.h"

#include <vector>

namespace wyvern::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;      // fixed partition: the sum does not depend on who adds which piece

template <class F> double piecewise(const Tensor& x, F&& term) {
  const int64_t n = x.numel(), pieces = (n + kPiece - 1) / kPiece;
  std::vector<double> part(size_t(pieces), 0.0);
  with_float(x.dtype, [&]<class T>(T) {
    const T* p = as<T>(x);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
      double lane[8] = {};
      const int64_t end = (i + 1) * kPiece < n ? (i + 1) * kPiece : n;
      int64_t j = i * kPiece;
      for (; j + 8 <= end; j += 8)
        for (int64_t l = 0; l < 8; l++) lane[l] += term(double(acc_t<T>(p[j + l])));
      for (; j < end; j++) lane[0] += term(double(acc_t<T>(p[j])));
      part[size_t(i)] = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    }
  });
  double total = 0;
  for (double p : part) total += p;
  return total;
}

}  // namespace

void sum_squares(Stream&, const SumSquares& a) { *a.out += piecewise(a.x, [](double v) { return v * v; }); }
void sum(Stream&, const Sum& a) { *a.out += piecewise(a.x, [](double v) { return v; }); }

}  // namespace wyvern::cpu
