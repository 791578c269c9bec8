#include "kernels/norm.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/ranges.h"

namespace wyvern::cpu {
namespace {

template <class A> struct Affine {       // a parameter as acc_t, whatever it is stored in
  std::vector<A> value;
  explicit Affine(const Tensor& t, int64_t D, A otherwise) : value(size_t(D), otherwise) {
    if (t) with_float(t.dtype, [&]<class W>(W) { for (int64_t i = 0; i < D; i++) value[size_t(i)] = A(acc_t<W>(as<W>(t)[i])); });
  }
};

// What rows.h takes for an absent parameter.
template <class A> const A* pointer(const Tensor& t, const Affine<A>& value) { return t ? value.value.data() : nullptr; }

template <class T> void forward(const NormForward& a) {
  using A = acc_t<T>;
  const int64_t N = a.x.dim[0], W = a.x.dim[1], Wo = a.out.dim[1], D = a.D, G = a.groups;
  const Affine<A> w(a.w, D, A(1)), b(a.b, D, A(0));
  T *out = as<T>(a.out), *x = as<T>(a.x);
  A* rstd = as<A>(a.rstd);
  A* mean = a.mean ? as<A>(a.mean) : nullptr;
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < N; n++) {
    if constexpr (!kIsDouble<T>) {
      for (int64_t g = 0; g < G; g++) {
        const int64_t at = n * W + a.offset + g * D;
        isa::rows<T>().norm_forward(out + n * Wo + a.offset + g * D, rstd + n * G + g, mean ? mean + n * G + g : nullptr, x + at,
                                    a.a ? as<T>(a.a) + at : nullptr, a.a ? as<T>(a.b_add) + at : nullptr, pointer(a.w, w), pointer(a.b, b),
                                    D, float(a.eps));
      }
      continue;
    }
    if (a.a)
      for (int64_t i = 0; i < W; i++) x[n * W + i] = T(A(as<T>(a.a)[n * W + i]) + A(as<T>(a.b_add)[n * W + i]));
    for (int64_t g = 0; g < G; g++) {
      const T* u = x + n * W + a.offset + g * D;
      T* o = out + n * Wo + a.offset + g * D;
      A m = 0, q = 0;
      if (mean) {
        for (int64_t i = 0; i < D; i++) m += A(u[i]);
        m /= A(D);
        mean[n * G + g] = m;
      }
      for (int64_t i = 0; i < D; i++) q += (A(u[i]) - m) * (A(u[i]) - m);
      const A r = 1 / std::sqrt(q / A(D) + A(a.eps));
      rstd[n * G + g] = r;
      for (int64_t i = 0; i < D; i++) o[i] = T((A(u[i]) - m) * r * w.value[size_t(i)] + b.value[size_t(i)]);
    }
  }
}

// Rows are cut into a fixed number of parts, each with its own dw and db; the parts are added in order.
constexpr int64_t kParts = 32;

template <class T> void backward(const NormBackward& a) {
  using A = acc_t<T>;
  const int64_t N = a.x.dim[0], W = a.x.dim[1], Wo = a.dout.dim[1], D = a.D, G = a.groups;
  const Affine<A> w(a.w, D, A(1));
  T* dx = as<T>(a.dx);
  const T *dout = as<T>(a.dout), *x = as<T>(a.x);
  const A* rstd = as<A>(a.rstd);
  const A* mean = a.mean ? as<A>(a.mean) : nullptr;
  std::vector<A> dw_parts(size_t(kParts * D), A(0)), db_parts(size_t(kParts * D), A(0));
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < kParts; part++) {
    A *dw = dw_parts.data() + part * D, *db = db_parts.data() + part * D;
    for (int64_t n = N * part / kParts; n < N * (part + 1) / kParts; n++)
      for (int64_t g = 0; g < G; g++) {
        const int64_t at = n * W + a.offset + g * D, from = n * Wo + a.offset + g * D;
        const A r = rstd[n * G + g], m = mean ? mean[n * G + g] : A(0);
        if constexpr (!kIsDouble<T>) {
          isa::rows<T>().norm_backward(dx + at, dw, db, dout + from, x + at, r, mean ? &m : nullptr, pointer(a.w, w), D, a.add_dx);
          continue;
        }
        A dot = 0, sum = 0;
        for (int64_t i = 0; i < D; i++) {
          const A d = A(dout[from + i]), xhat = (A(x[at + i]) - m) * r, dn = d * w.value[size_t(i)];
          dw[i] += d * xhat;
          db[i] += d;
          dot += dn * xhat;
          sum += dn;
        }
        dot /= A(D);
        sum = mean ? sum / A(D) : A(0);
        for (int64_t i = 0; i < D; i++) {
          const A xhat = (A(x[at + i]) - m) * r;
          const A d = r * (A(dout[from + i]) * w.value[size_t(i)] - sum - xhat * dot);
          dx[at + i] = T(a.add_dx ? A(dx[at + i]) + d : d);
        }
      }
  }
  for (int64_t part = 0; part < kParts; part++)
    for (int64_t i = 0; i < D; i++) {
      if (a.dw) as<A>(a.dw)[i] += dw_parts[size_t(part * D + i)];
      if (a.db) as<A>(a.db)[i] += db_parts[size_t(part * D + i)];
    }
}

}  // namespace

void norm_forward(Stream&, const NormForward& a) {
  with_float(a.x.dtype, [&]<class T>(T) { forward<T>(a); });
}
void norm_backward(Stream&, const NormBackward& a) {
  with_float(a.x.dtype, [&]<class T>(T) { backward<T>(a); });
}

}  // namespace wyvern::cpu
