#include "kernels/rope.h"

#include <cmath>
#include <vector>

namespace wyvern::cpu {

void rope(Stream&, const Rope& a) {
  const int64_t N = a.x.matrix.dim[0], half = a.D / 2, Wx = a.x.matrix.dim[1], Wo = a.out.matrix.dim[1];
  const int32_t* position = as<int32_t>(a.positions);
  const double sign = a.backward ? -1 : 1;
  with_float(a.x.matrix.dtype, [&]<class T>(T) {
    using A = acc_t<T>;
    T* out = as<T>(a.out.matrix) + a.out.offset;
    const T* x = as<T>(a.x.matrix) + a.x.offset;
#pragma omp parallel
    {
      std::vector<A> cosine(size_t(half), A(1)), sine(size_t(half), A(0));
#pragma omp for schedule(static)
      for (int64_t n = 0; n < N; n++) {
        for (int64_t i = 0; i < half; i++) {
          const double angle = double(position[n]) * a.inv_freq[i];
          cosine[size_t(i)] = A(std::cos(angle) * a.magnitude);
          sine[size_t(i)] = A(sign * std::sin(angle) * a.magnitude);
        }
        for (int64_t g = 0; g < a.groups; g++) {
          const T* u = x + n * Wx + g * a.D;
          T* o = out + n * Wo + g * a.D;
          for (int64_t i = 0; i < half; i++) {
            const A p = A(u[i]), q = A(u[i + half]), c = cosine[size_t(i)], s = sine[size_t(i)];
            o[i] = T(p * c - q * s);
            o[i + half] = T(q * c + p * s);
          }
        }
      }
    }
  });
}

}  // namespace wyvern::cpu
