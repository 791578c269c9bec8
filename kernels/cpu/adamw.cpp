#include "kernels/adamw.h"

#include <cmath>

namespace wyvern::cpu {

void adamw(Stream&, const AdamW& a) {
  const int64_t n = a.p.numel();
  with_float(a.value.dtype, [&]<class T>(T) {
    using A = acc_t<T>;
    T* value = as<T>(a.value);
    A *p = as<A>(a.p), *m = as<A>(a.m), *v = as<A>(a.v);
    const A* grad = as<A>(a.grad);
    const A b1 = A(a.beta1), b2 = A(a.beta2), c1 = A(1 - a.beta1), c2 = A(1 - a.beta2);
    const A decay = A(1 - a.lr * a.weight_decay), step = A(a.lr / (1 - std::pow(a.beta1, double(a.t))));
    const A root = A(1 / std::sqrt(1 - std::pow(a.beta2, double(a.t)))), eps = A(a.eps), gs = A(a.grad_scale);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
      const A g = grad[i] * gs;
      m[i] = b1 * m[i] + c1 * g;
      v[i] = b2 * v[i] + c2 * g * g;
      p[i] = p[i] * decay - step * m[i] / (std::sqrt(v[i]) * root + eps);
      value[i] = T(p[i]);
    }
  });
}

}  // namespace wyvern::cpu
