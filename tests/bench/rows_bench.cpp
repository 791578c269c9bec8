// Row kernels on one thread over arrays far larger than the caches: GB/s of the memory an op must read and write.
// Not built by default:
//   g++ -std=c++20 -O2 -fopenmp -I. tests/bench/rows_bench.cpp <build>/libwyvern_kernels.a -lfmt -lspdlog -o rows_bench
//   WYVERN_CPU_TIER=avx2 ./rows_bench
#include <ctime>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/base/philox.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/isa/tier.h"

using namespace wyvern;

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}
template <class F> static void report(const char* name, double bytes, F&& run) {
  run();
  double best = 1e9;
  for (int i = 0; i < 15; i++) {
    const double start = seconds();
    run();
    best = std::min(best, seconds() - start);
  }
  std::printf("  %-24s %8.2f ms %7.1f GB/s\n", name, best * 1e3, bytes / best * 1e-9);
}

// 64-byte aligned like an arena; lives until the end.
template <class T> static T* numbers(int64_t n) {
  T* x = static_cast<T*>(std::aligned_alloc(4096, (size_t(n) * sizeof(T) + 4095) / 4096 * 4096));
  std::minstd_rand rng(1);
  for (int64_t i = 0; i < n; i++) x[i] = float(rng() % 65536) / 16384.0f - 2.0f;
  return x;
}

template <class T> static void all(const char* storage) {
  std::printf("%s\n", storage);
  const isa::RowKernels<T>& k = isa::rows<T>();
  const int64_t N = 4096, C = 768, F = 3072, V = 50257, R = 256;
  const double size = sizeof(T);
  T *x = numbers<T>(N * F), *y = numbers<T>(N * F), *z = numbers<T>(N * F), *logits = numbers<T>(R * V);
  auto w = numbers<float>(C), b = numbers<float>(C), dw = numbers<float>(C), db = numbers<float>(C);
  auto mean = numbers<float>(N), rstd = numbers<float>(N);
  report("layernorm forward", 2 * size * N * C, [&] {
    for (int64_t n = 0; n < N; n++) k.norm_forward(&y[n * C], &rstd[n], &mean[n], &x[n * C], nullptr, nullptr, w, b, C, 1e-5f);
  });
  report("rmsnorm forward", 2 * size * N * C, [&] {
    for (int64_t n = 0; n < N; n++) k.norm_forward(&y[n * C], &rstd[n], nullptr, &x[n * C], nullptr, nullptr, w, nullptr, C, 1e-5f);
  });
  report("add + layernorm forward", 4 * size * N * C, [&] {
    for (int64_t n = 0; n < N; n++)
      k.norm_forward(&y[n * C], &rstd[n], &mean[n], &x[n * C], &z[n * C], &z[(N + n) * C], w, b, C, 1e-5f);
  });
  report("layernorm backward", 3 * size * N * C, [&] {
    for (int64_t n = 0; n < N; n++)
      k.norm_backward(&z[n * C], dw, db, &y[n * C], &x[n * C], rstd[n], &mean[n], w, C, false);
  });
  report("layernorm backward +=", 4 * size * N * C, [&] {
    for (int64_t n = 0; n < N; n++)
      k.norm_backward(&z[n * C], dw, db, &y[n * C], &x[n * C], rstd[n], &mean[n], w, C, true);
  });
  report("gelu forward", 2 * size * N * F, [&] { k.gelu_forward(y, x, N * F); });
  report("gelu backward", 3 * size * N * F, [&] { k.gelu_backward(z, y, x, N * F); });
  report("swiglu forward", 1.5 * size * N * F, [&] {
    for (int64_t n = 0; n < N; n++) k.swiglu_forward(&y[n * F / 2], &x[n * F], F / 2);
  });
  report("swiglu backward", 2.5 * size * N * F, [&] {
    for (int64_t n = 0; n < N; n++) k.swiglu_backward(&z[n * F], &y[n * F / 2], &x[n * F], F / 2);
  });
  report("dropout", 2 * size * N * F, [&] {
    for (int64_t n = 0; n < N; n++) k.dropout(&y[n * F], &x[n * F], F, {1, 0, uint32_t(n), drop_threshold(0.1), 1.1f});
  });
  report("add", 3 * size * N * F, [&] { k.add(y, x, z, N * F); });
  report("sum of squares", size * N * F, [&] { k.sum_squares(x, N * F); });
  auto max = numbers<float>(R), sum = numbers<float>(R);
  report("softmax statistics", size * R * V, [&] {
    for (int64_t r = 0; r < R; r++) k.softmax_stats(&max[r], &sum[r], &logits[r * V], V);
  });
  report("softmax gradient", 2 * size * R * V, [&] {
    for (int64_t r = 0; r < R; r++) k.softmax_gradient(&logits[r * V], V, 2.0f, 1e4f, r, 1.0f, 0.0f);
  });
  const int64_t P = 20 << 20;
  auto p = numbers<float>(P), m = numbers<float>(P), v = numbers<float>(P), g = numbers<float>(P);
  for (int64_t i = 0; i < P; i++) v[i] *= v[i];
  auto value = numbers<T>(P);
  const isa::AdamWFactors f{0.9f, 0.95f, 0.1f, 0.05f, 0.9999f, 1e-3f, 1.0f, 1e-8f, 1.0f};
  report("adamw", (28 + (sizeof(T) == 2 ? 2 : 0)) * double(P), [&] {
    k.adamw(sizeof(T) == 2 ? value : nullptr, p, m, v, g, P, f);
  });
}

int main() {
  std::printf("tier %s, one thread\n", isa::name_of(isa::tier()));
  all<float>("f32");
  all<bf16>("bf16");
}
