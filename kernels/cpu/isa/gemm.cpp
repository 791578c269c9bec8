#include "kernels/cpu/isa/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "kernels/base/dtype.h"
#include "kernels/cpu/isa/gemm_unit.h"
#include "kernels/cpu/isa/tier.h"

namespace wyvern::isa {
namespace {

int64_t div_up(int64_t n, int64_t m) { return (n + m - 1) / m; }

// ---- the plain loop: any tier, and products without a sum ------------------------------------------------------------------

template <class In, class Out> void gemm_plain(const GemmCall& c) {
  const auto* a = static_cast<const In*>(c.a);
  const auto* b = static_cast<const In*>(c.b);
  const auto* bias = static_cast<const In*>(c.bias);
  auto* y = static_cast<Out*>(c.c);
#pragma omp parallel for schedule(static)
  for (int64_t m = 0; m < c.M; m++)
    for (int64_t n = 0; n < c.N; n++) {
      float sum = 0;
      for (int64_t k = 0; k < c.K; k++)
        sum += float(c.transpose_a ? a[k * c.lda + m] : a[m * c.lda + k]) * float(c.transpose_b ? b[n * c.ldb + k] : b[k * c.ldb + n]);
      if (bias) sum += float(bias[n]);
      Out& to = y[m * c.ldc + n];
      to = Out(c.accumulate ? float(to) + sum : sum);
    }
}

// ---- blocks over threads ---------------------------------------------------------------------------------------------------

// Packed B and the threads' scratch, kept between calls and owned by the calling thread. It grows before a parallel region,
// where an exception can still be thrown.
class Memory {
 public:
  char* get(int64_t bytes) {
    constexpr int64_t kPage = 4096;
    if (bytes > bytes_) {
      bytes_ = div_up(bytes, kPage) * kPage;
      data_.reset();
      data_.reset(static_cast<char*>(std::aligned_alloc(size_t(kPage), size_t(bytes_))));
      if (!data_) {
        const int64_t wanted = std::exchange(bytes_, 0);
        fail(kEnvironment, "matrix product: no memory for {} bytes of packed operands; lower train.micro_batch or train.threads", wanted);
      }
    }
    return data_.get();
  }

 private:
  struct Free { void operator()(char* p) const { std::free(p); } };
  std::unique_ptr<char, Free> data_;
  int64_t bytes_ = 0;
};
Memory& memory() {
  thread_local Memory m;
  return m;
}

// Column blocks whose packed copies exist at one time: the copy of a vocabulary's matrix would be as large as the matrix.
int64_t blocks_per_phase(const GemmUnit& unit, const GemmCall& c) {
  constexpr int64_t kPackedBytes = 16 << 20;
  return std::max<int64_t>(1, kPackedBytes / (div_up(c.K, c.kc) * c.kc * c.nc * unit.element_bytes));
}

// Waking the other threads costs some microseconds.
int threads_for(const GemmCall& c, bool matrix_unit) {
  const double microseconds = 2.0 * double(c.M) * double(c.N) * double(c.K) / (matrix_unit ? 1e6 : 1e5);
  return microseconds < 20 ? 1 : omp_get_max_threads();
}

void run_blocks(const GemmUnit& unit, GemmCall c) {
  constexpr int64_t kPanelsPerPack = 8;                // neighbours: long pieces of the rows of B
  const int threads = threads_for(c, unit.element_bytes == 2);
  unit.choose_blocks(&c, threads);
  const int64_t k_blocks = div_up(c.K, c.kc), n_blocks = div_up(c.N, c.nc), m_blocks = div_up(c.M, c.mc);
  const int64_t panels = c.nc / unit.panel, panel_bytes = c.kc * unit.panel * unit.element_bytes, range_bytes = k_blocks * panels * panel_bytes;
  const int64_t phase = std::min(n_blocks, blocks_per_phase(unit, c));
  const int64_t scratch_bytes = div_up(unit.scratch_bytes(c), 4096) * 4096;
  char* const packed = memory().get(phase * range_bytes + threads * scratch_bytes);
  char* const scratch = packed + phase * range_bytes;

  const int64_t runs = div_up(panels, kPanelsPerPack);

#pragma omp parallel num_threads(threads)
  for (int64_t first = 0; first < n_blocks; first += phase) {
    const int64_t ranges = std::min(phase, n_blocks - first);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < ranges * k_blocks * runs; i++) {
      const int64_t block = i / runs, panel = i % runs * kPanelsPerPack;
      const int64_t n0 = (first + block / k_blocks) * c.nc + panel * unit.panel;
      const int64_t count = std::min({kPanelsPerPack, panels - panel, div_up(c.N - n0, unit.panel)});
      if (count > 0) unit.pack_b(c, block % k_blocks * c.kc, n0, count, packed + (block * panels + panel) * panel_bytes);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < ranges * m_blocks; i++)
      unit.run_task(c, i % m_blocks * c.mc, (first + i / m_blocks) * c.nc, packed + i / m_blocks * range_bytes, scratch + omp_get_thread_num() * scratch_bytes);
  }
}

// One token of every sequence: the time is that of reading B, so nothing is done to B but reading it.
bool few_rows(const GemmCall& c) { return c.M <= kFewRows && !c.transpose_a && c.transpose_b && !c.accumulate; }
void run_few_rows(const GemmCall& c) {
  constexpr int64_t kColumns = 256;
  constexpr double kBytesPerMicrosecond = 2e4;
  const int threads = 2.0 * double(c.N) * double(c.K) / kBytesPerMicrosecond < 20 ? 1 : omp_get_max_threads();
  auto* const rows = reinterpret_cast<uint16_t*>(memory().get(kFewRows * div_up(c.K, 32) * 32 * 2));
  pack_few_rows_amx(c, rows);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t n = 0; n < c.N; n += kColumns) multiply_few_rows_amx(c, rows, n, std::min(n + kColumns, c.N));
}

// Streaming stores pay when C would push other things out of the caches, and need whole cache lines.
bool worth_streaming(const GemmCall& c) {
  constexpr int64_t kCached = 4 << 20;
  const int64_t size = c.bf16_out ? 2 : 4;
  return !c.accumulate && c.M * c.N * size > kCached && reinterpret_cast<uintptr_t>(c.c) % 64 == 0 && c.ldc * size % 64 == 0;
}

void run(const Gemm& g, bool bf16_in, bool bf16_out) {
  CHECK(!(g.bias && g.accumulate), "a product with bias and accumulate");
  if (g.M <= 0 || g.N <= 0) return;
  GemmCall c = {g.M, g.N, g.K, g.a, g.lda, g.transpose_a, g.b, g.ldb, g.transpose_b, g.c, g.ldc, g.bias, g.accumulate, bf16_in, bf16_out};
  c.stream = worth_streaming(c);
#ifdef __x86_64__
  const Tier t = tier();
  if (t != Tier::plain && g.K > 0) {
    if (t == Tier::amx && bf16_in && few_rows(c)) return run_few_rows(c);
    return run_blocks(t == Tier::avx2 ? kGemmAvx2 : t == Tier::amx && bf16_in ? kGemmAmx : kGemmAvx512, c);
  }
#endif
  if (!bf16_in) gemm_plain<float, float>(c);
  else if (bf16_out) gemm_plain<bf16, bf16>(c);
  else gemm_plain<bf16, float>(c);
}

}  // namespace

void gemm_f32(const Gemm& g) { run(g, false, false); }
void gemm_bf16(const Gemm& g) { run(g, true, true); }
void gemm_bf16_f32(const Gemm& g) { run(g, true, false); }

}  // namespace wyvern::isa
