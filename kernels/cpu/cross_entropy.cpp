#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/ranges.h"

namespace wyvern::cpu {

void cross_entropy_stats(Stream&, const CrossEntropyStats& a) {
  const int64_t n = a.logits.dim[0], V = a.logits.dim[1];
  const int64_t live = std::max<int64_t>(0, std::min(V, a.vocab - a.first_column));
  const int32_t* targets = as<int32_t>(a.targets);
  with_float(a.logits.dtype, [&]<class T>(T) {
    using A = acc_t<T>;
    T* logits = as<T>(a.logits);
    A* stats = as<A>(a.stats);
    const A cap = A(a.softcap);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
      T* z = logits + i * V;
      A top = -std::numeric_limits<A>::infinity(), total = 0;
      if constexpr (kIsDouble<T>) {
        if (cap > 0)
          for (int64_t v = 0; v < live; v++) z[v] = cap * std::tanh(z[v] / cap);
        for (int64_t v = 0; v < live; v++) top = std::max(top, z[v]);
        for (int64_t v = 0; v < live; v++) total += std::exp(z[v] - top);     // a NaN logit makes this NaN
      } else {
        if (cap > 0) isa::rows<T>().softcap(z, live, cap);
        isa::rows<T>().softmax_stats(&top, &total, z, live);
      }
      const int64_t t = targets[i] - a.first_column;
      stats[i * 3] = top;
      stats[i * 3 + 1] = total;
      stats[i * 3 + 2] = targets[i] >= 0 && t >= 0 && t < live ? A(z[t]) : A(0);
    }
  });
}

void cross_entropy_gradient(Stream&, const CrossEntropyGradient& a) {
  const int64_t n = a.logits.dim[0], V = a.logits.dim[1], ranks = a.all_stats.dim[0] / n;
  const int64_t live = std::max<int64_t>(0, std::min(V, a.vocab - a.first_column));
  const int32_t* targets = as<int32_t>(a.targets);
  with_float(a.logits.dtype, [&]<class T>(T) {
    using A = acc_t<T>;
    T* logits = as<T>(a.logits);
    A* token_loss = as<A>(a.token_loss);
    const A* all = as<A>(a.all_stats);
    const A cap = A(a.softcap), scale = A(a.scale);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
      A top = -std::numeric_limits<A>::infinity(), total = 0, target = 0;
      for (int64_t r = 0; r < ranks; r++) top = std::max(top, all[(r * n + i) * 3]);
      for (int64_t r = 0; r < ranks; r++) {
        const A* s = all + (r * n + i) * 3;
        if (s[1] != 0) total += s[1] * std::exp(s[0] - top);
        target += s[2];
      }
      const A lse = top + std::log(total);
      const bool counts = targets[i] >= 0;
      token_loss[i] = counts ? lse - target : A(0);
      if (!a.write_gradient) continue;
      T* z = logits + i * V;
      const int64_t here = counts ? live : 0, t = targets[i] - a.first_column;
      if constexpr (kIsDouble<T>)
        for (int64_t v = 0; v < here; v++) {
          double d = (std::exp(z[v] - lse) - double(v == t)) * scale;
          if (cap > 0) d *= 1 - (z[v] / cap) * (z[v] / cap);
          z[v] = d;
        }
      else isa::rows<T>().softmax_gradient(z, here, top, total, t >= 0 && t < live ? t : -1, scale, cap);
      for (int64_t v = here; v < V; v++) z[v] = T(A(0));
    }
  });
}

}  // namespace wyvern::cpu
