// Times the matrix products of a training step through kernels/cpu/isa/gemm.h: forward, dX and dW of each shape in turn, again
// and again, with the machine's peak measured in between, so that all lines saw the same neighbours. Best and median.
//
//   cmake --build build --target wyvern_kernels
//   g++ -std=c++20 -O2 -fopenmp -I. tests/bench/gemm_bench.cpp build/libwyvern_kernels.a -lspdlog -lfmt -o build/gemm_bench
//   build/gemm_bench [bf16|f32] [seconds per shape] [shape]
#include <fmt/core.h>
#include <omp.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/cpu/isa/gemm.h"
#include "kernels/cpu/isa/peak.h"
#include "kernels/cpu/isa/tier.h"

using namespace wyvern;

namespace {

struct Shape {
  const char* name;
  int64_t M, N, K;                 // y (M, N) = x (M, K) w^T (N, K)
};
constexpr Shape kShapes[] = {
    {"qkv", 4096, 2304, 768},       {"proj", 4096, 768, 768},       {"up", 4096, 3072, 768},    {"down", 4096, 768, 3072},
    {"head-256", 256, 50304, 768},  {"head-1024", 1024, 50304, 768}, {"small-up", 768, 512, 128}, {"small-proj", 768, 128, 128},
    {"quick-up", 2048, 1024, 256},  {"quick-proj", 2048, 256, 256}, {"decode-1", 1, 2304, 768}, {"decode-8", 8, 3072, 768},
};

struct Product {
  std::string name;
  double flops;
  std::function<void()> run;
  std::vector<double> times;
};

// Seconds on the wall; with one thread, of that thread's own time, which other processes on the machine do not add to.
double now() {
  timespec t;
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

template <class T> T* filled(int64_t n, float scale) {
  constexpr size_t kHugePage = 2 << 20;                  // as the arenas have
  const size_t bytes = (size_t(n) * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
  auto* p = static_cast<T*>(std::aligned_alloc(kHugePage, bytes));
  madvise(p, bytes, MADV_HUGEPAGE);
  uint32_t s = 7;
  for (int64_t i = 0; i < n; i++) {
    s = s * 1664525u + 1013904223u;
    p[i] = T(scale * (float(s >> 8) / float(1 << 24) - 0.5f));
  }
  return p;
}

template <class T> void bench(const Shape& s, double seconds) {
  const auto [name, M, N, K] = s;
  T* x = filled<T>(M * K, 1);
  T* w = filled<T>(N * K, 1);
  T* y = filled<T>(M * N, 1);
  T* dx = filled<T>(M * K, 1);
  float* dw = filled<float>(N * K, 1);
  constexpr bool kHalf = sizeof(T) == 2;
  const auto same = kHalf ? isa::gemm_bf16 : isa::gemm_f32;
  const auto wide = kHalf ? isa::gemm_bf16_f32 : isa::gemm_f32;
  const isa::Gemm forward = {.M = M, .N = N, .K = K, .a = x, .lda = K, .transpose_a = false, .b = w, .ldb = K, .transpose_b = true,
                             .c = y, .ldc = N};
  const isa::Gemm to_x = {.M = M, .N = K, .K = N, .a = y, .lda = N, .transpose_a = false, .b = w, .ldb = K, .transpose_b = false,
                          .c = dx, .ldc = K};
  const isa::Gemm to_w = {.M = N, .N = K, .K = M, .a = y, .lda = N, .transpose_a = true, .b = x, .ldb = K, .transpose_b = false,
                          .c = dw, .ldc = K, .accumulate = true};
  const double flops = 2.0 * double(M) * double(N) * double(K);
  std::vector<Product> products = {{"forward", flops, [&] { same(forward); }, {}}, {"dX", flops, [&] { same(to_x); }, {}},
                                   {"dW", flops, [&] { wide(to_w); }, {}}};
  for (Product& p : products) p.run();
  double peak = 0;
  const double until = now() + seconds;
  do {
    peak = std::max(peak, isa::measure_peak_flops(kHalf));
    for (Product& p : products) {
      const int repeats = std::max(1, int(5e7 / p.flops));
      const double begin = now();
      for (int i = 0; i < repeats; i++) p.run();
      p.times.push_back((now() - begin) / repeats);
    }
  } while (now() < until || products[0].times.size() < 5);
  fmt::print("{:11} {:5} x {:5} x {:4}  peak {:6.0f} ", name, M, N, K, peak * 1e-9);
  for (Product& p : products) {
    std::sort(p.times.begin(), p.times.end());
    fmt::print(" | {} best {:5.0f} median {:5.0f}", p.name, p.flops * 1e-9 / p.times[0], p.flops * 1e-9 / p.times[p.times.size() / 2]);
  }
  fmt::print("  ({} rounds)\n", products[0].times.size());
  std::fflush(stdout);
  for (void* p : {(void*)x, (void*)w, (void*)y, (void*)dx, (void*)dw}) std::free(p);
}

}  // namespace

int main(int argc, char** argv) {
  const bool f32 = argc > 1 && !std::strcmp(argv[1], "f32");
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  const std::string only = argc > 3 ? argv[3] : "";
  fmt::print("GFLOP/s on {} threads, tier {}, {}\n", omp_get_max_threads(), isa::name_of(isa::tier()), f32 ? "f32" : "bf16");
  for (const Shape& s : kShapes)
    if (only.empty() || only == s.name) f32 ? bench<float>(s, seconds) : bench<bf16>(s, seconds);
}
