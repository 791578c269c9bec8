#include "kernels/embedding.h"

namespace wyvern::cpu {

void embedding_forward(Stream&, const EmbeddingForward& a) {
  const int64_t N = a.x.dim[0], C = a.x.dim[1], R = a.w.dim[0];
  const int32_t* index = as<int32_t>(a.index);
  with_float(a.x.dtype, [&]<class T>(T) {
    T* x = as<T>(a.x);
    const T* w = as<T>(a.w);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
      const int64_t r = index[n] - a.first_row;
      const bool here = r >= 0 && r < R;
      for (int64_t c = 0; c < C; c++) {
        const acc_t<T> old = a.add ? acc_t<T>(x[n * C + c]) : acc_t<T>(0);
        x[n * C + c] = T(old + (here ? acc_t<T>(w[r * C + c]) : acc_t<T>(0)));
      }
    }
  });
}

// Each thread owns a range of channels and walks the rows in order: no atomics, the same bits for any thread count.
void embedding_backward(Stream&, const EmbeddingBackward& a) {
  const int64_t N = a.dx.dim[0], C = a.dx.dim[1], R = a.dw.dim[0];
  const int32_t* index = as<int32_t>(a.index);
  constexpr int64_t kStripe = 64;
  with_float(a.dx.dtype, [&]<class T>(T) {
    acc_t<T>* dw = as<acc_t<T>>(a.dw);
    const T* dx = as<T>(a.dx);
#pragma omp parallel for schedule(static)
    for (int64_t c0 = 0; c0 < C; c0 += kStripe) {
      const int64_t c1 = c0 + kStripe < C ? c0 + kStripe : C;
      for (int64_t n = 0; n < N; n++) {
        const int64_t r = index[n] - a.first_row;
        if (r < 0 || r >= R) continue;
        for (int64_t c = c0; c < c1; c++) dw[r * C + c] += acc_t<T>(dx[n * C + c]);
      }
    }
  });
}

}  // namespace wyvern::cpu
