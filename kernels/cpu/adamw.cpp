#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/ranges.h"

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
    for_ranges(n, [&](int64_t b, int64_t e) {
      if constexpr (!kIsDouble<T>) {
        const isa::AdamWFactors f{
            .beta1 = b1, .beta2 = b2, .rest1 = c1, .rest2 = c2, .decay = decay, .step = step, .root = root, .eps = eps, .grad_scale = gs};
        isa::rows<T>().adamw(value + b, p + b, m + b, v + b, grad + b, e - b, f);
        return;
      }
      for (int64_t i = b; i < e; i++) {
        const A g = grad[i] * gs;
        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * g * g;
        p[i] = p[i] * decay - step * m[i] / (std::sqrt(v[i]) * root + eps);
        value[i] = T(p[i]);
      }
    });
  });
}

}  // namespace wyvern::cpu
