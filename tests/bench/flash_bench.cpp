// Flash attention on the matrix unit, GPT-2 124M shape: milliseconds per layer and GFLOP/s, best and median of many runs.
// Not built by default:
//   g++ -std=c++20 -O2 -fopenmp -I. tests/bench/flash_bench.cpp <build>/libwyvern_kernels.a -lfmt -lspdlog -o flash_bench
//   OMP_NUM_THREADS=1 ./flash_bench [B T H Hkv D [window softcap dropout]]
// With one thread the time is thread CPU time, which other processes on the machine disturb less.
#include <ctime>

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/base/arena.h"
#include "kernels/cpu/isa/flash.h"

using namespace wyvern;

static double seconds() {
  if (omp_get_max_threads() > 1) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

template <class F> static void report(const char* name, double flop, F&& run) {
  run();
  std::vector<double> times;
  for (double used = 0; times.size() < 10 || (used < 2 && times.size() < 500); used += times.back()) {
    const double start = seconds();
    run();
    times.push_back(seconds() - start);
  }
  std::sort(times.begin(), times.end());
  const double best = times[0], median = times[times.size() / 2];
  std::printf("%-9s best %7.2f ms (%5.0f GFLOP/s)   median %7.2f ms (%5.0f GFLOP/s)\n", name, best * 1e3, flop / best * 1e-9, median * 1e3,
              flop / median * 1e-9);
}

int main(int argc, char** argv) {
  const auto argument = [&](int i, double otherwise) { return argc > i ? std::atof(argv[i]) : otherwise; };
  const auto B = int64_t(argument(1, 4)), T = int64_t(argument(2, 1024));
  AttentionShape s{.H = int64_t(argument(3, 12)), .Hkv = int64_t(argument(4, 12)), .D = int64_t(argument(5, 64)), .T = T};
  s.scale = 1 / std::sqrt(double(s.D)), s.window = int64_t(argument(6, 0)), s.softcap = argument(7, 0), s.dropout = argument(8, 0);
  if (!isa::flash_supports(s, DType::bf16)) return std::puts("not supported on this machine"), 1;

  const int64_t N = B * T, HD = s.H * s.D, W = HD + 2 * s.Hkv * s.D;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  Arena arena(4 * N * (W + HD + s.H) + (1 << 20));                             // as in training: huge pages matter here
  std::vector<int32_t> starts;
  for (int64_t b = 0; b <= B; b++) starts.push_back(int32_t(b * T));
  const Tensor x = arena.alloc(DType::bf16, {N, W}, "qkv"), dx = arena.alloc(DType::bf16, {N, W}, "dqkv");
  const Tensor o = arena.alloc(DType::bf16, {N, HD}, "out"), dout = arena.alloc(DType::bf16, {N, HD}, "dout");
  const Tensor l = arena.alloc(DType::f32, {N, s.H}, "lse");
  for (const Tensor& t : {x, dx, dout})
    for (int64_t i = 0; i < t.numel(); i++) as<bf16>(t)[i] = normal(rng);
  const Tensor documents = view(starts.data(), DType::i32, {B + 1});
  const int64_t k = HD, v = HD + s.Hkv * s.D;

  const double pairs = double(B * s.H) * double(T) * double(T + 1) / 2;      // causal
  std::printf("B %ld T %ld H %ld/%ld D %ld, %d threads\n", long(B), long(T), long(s.H), long(s.Hkv), long(s.D), omp_get_max_threads());
  report("forward", 4 * pairs * double(s.D), [&] {
    isa::flash_forward({.out = o, .lse = l, .q = {x, 0}, .k = {x, k}, .v = {x, v}, .doc_starts = documents, .shape = s});
  });
  report("backward", 10 * pairs * double(s.D), [&] {
    isa::flash_backward({.dq = {dx, 0}, .dk = {dx, k}, .dv = {dx, v}, .dout = dout, .out = o, .lse = l, .q = {x, 0}, .k = {x, k},
                         .v = {x, v}, .doc_starts = documents, .shape = s});
  });
}
