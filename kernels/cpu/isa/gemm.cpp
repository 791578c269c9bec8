#include "kernels/cpu/isa/gemm.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/base/dtype.h"
#include "kernels/cpu/isa/gemm_unit.h"
#include "kernels/cpu/isa/tier.h"
#include "kernels/cpu/isa/workspace.h"

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

// Packed operands and the threads' scratch, kept between calls and owned by the calling thread. It grows before a parallel
// region, where an exception can still be thrown. Huge pages are worth 10 %.
class Memory {
 public:
  static constexpr int64_t kHugePage = 2 << 20;
  ~Memory() { workspace_changed(-bytes_); }
  char* get(int64_t bytes) {
    if (bytes > bytes_) {
      const int64_t size = div_up(bytes, kHugePage) * kHugePage;
      data_.reset();
      workspace_changed(-bytes_);
      bytes_ = 0;
      data_.reset(static_cast<char*>(std::aligned_alloc(size_t(kHugePage), size_t(size))));
      if (!data_)
        fail(kEnvironment, "matrix product: no memory for {} bytes of packed operands; lower train.micro_batch or train.threads", size);
      madvise(data_.get(), size_t(size), MADV_HUGEPAGE);
      bytes_ = size;
      workspace_changed(size);
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

// Waking the other threads costs some microseconds.
int threads_for(const GemmCall& c, bool matrix_unit) {
  const double microseconds = 2.0 * double(c.M) * double(c.N) * double(c.K) / (matrix_unit ? 1e6 : 1e5);
  return microseconds < 20 ? 1 : omp_get_max_threads();
}

// The order of work: ranges of columns, within them ranges of rows, so that packed operands never take more than kPackedBytes
// each (or one task's share); the packed copy of a vocabulary's matrix would be as large as the matrix.
struct Schedule {
  int64_t k_blocks, n_blocks, m_blocks;
  int64_t panels;                  // of a block of B
  int64_t panel_bytes, column_bytes, row_bytes;                // a panel; all k of a column range; all k of a task's rows of A
  int64_t n_step, m_step;          // blocks per range
  int64_t scratch_bytes;           // per thread
  int64_t packed_b_bytes() const { return n_step * column_bytes; }
  int64_t packed_a_bytes() const { return m_step * row_bytes; }
  int64_t bytes(int threads) const { return packed_b_bytes() + packed_a_bytes() + threads * scratch_bytes; }
};
Schedule schedule_of(const GemmUnit& unit, const GemmCall& c) {
  constexpr int64_t kPackedBytes = 32 << 20;
  Schedule s = {div_up(c.K, c.kc), div_up(c.N, c.nc), div_up(c.M, c.mc), c.nc / unit.panel};
  s.panel_bytes = c.kc * unit.panel * unit.element_bytes;
  s.column_bytes = s.k_blocks * s.panels * s.panel_bytes;
  s.row_bytes = unit.pack_a && c.transpose_a ? div_up(c.K, 32) * 32 * c.mc * unit.element_bytes : 0;
  s.n_step = std::min(s.n_blocks, std::max<int64_t>(1, kPackedBytes / s.column_bytes));
  s.m_step = s.row_bytes == 0 ? s.m_blocks : std::min(s.m_blocks, std::max<int64_t>(1, kPackedBytes / s.row_bytes));
  s.scratch_bytes = div_up(unit.scratch_bytes(c), 4096) * 4096;
  return s;
}

void run_blocks(const GemmUnit& unit, GemmCall c) {
  constexpr int64_t kRun = 8;      // panels of B packed together: long pieces of its rows
  const int threads = threads_for(c, unit.element_bytes == 2);
  unit.choose_blocks(&c, threads);
  const Schedule s = schedule_of(unit, c);
  const int64_t runs = div_up(s.panels, kRun), stripes = s.row_bytes == 0 ? 0 : div_up(c.K, 32);
  char* const packed_b = memory().get(s.bytes(threads));
  char* const packed_a = packed_b + s.packed_b_bytes();
  char* const scratch = packed_a + s.packed_a_bytes();

#pragma omp parallel num_threads(threads)
  for (int64_t n_first = 0; n_first < s.n_blocks; n_first += s.n_step) {
    const int64_t columns = std::min(s.n_step, s.n_blocks - n_first);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t i = 0; i < columns * s.k_blocks * runs; i++) {
      const int64_t block = i / runs, panel = i % runs * kRun, n0 = (n_first + block / s.k_blocks) * c.nc + panel * unit.panel;
      const int64_t count = std::min({kRun, s.panels - panel, div_up(c.N - n0, unit.panel)});
      if (count > 0) unit.pack_b(c, block % s.k_blocks * c.kc, n0, count, packed_b + (block * s.panels + panel) * s.panel_bytes);
    }
    for (int64_t m_first = 0; m_first < s.m_blocks; m_first += s.m_step) {
      const int64_t rows = std::min(s.m_step, s.m_blocks - m_first), m0 = m_first * c.mc;
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < stripes; i++) unit.pack_a(c, m0, std::min(rows * c.mc, c.M - m0), i * 32, packed_a);
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t m = i % rows, n = i / rows;
        unit.run_task(c, m0 + m * c.mc, (n_first + n) * c.nc, s.row_bytes == 0 ? nullptr : packed_a + m * s.row_bytes,
                      packed_b + n * s.column_bytes, scratch + omp_get_thread_num() * s.scratch_bytes);
      }
    }
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

GemmCall call_of(const Gemm& g, bool bf16_in, bool bf16_out) {
  return {g.M, g.N, g.K, g.a, g.lda, g.transpose_a, g.b, g.ldb, g.transpose_b, g.c, g.ldc, g.bias, g.accumulate, bf16_in, bf16_out};
}
#ifdef __x86_64__
const GemmUnit& unit_for(bool bf16_in) {
  const Tier t = tier();
  return t == Tier::avx2 ? kGemmAvx2 : t == Tier::amx && bf16_in ? kGemmAmx : kGemmAvx512;
}
#endif

void run(const Gemm& g, bool bf16_in, bool bf16_out) {
  CHECK(!(g.bias && g.accumulate), "a product with bias and accumulate");
  if (g.M <= 0 || g.N <= 0) return;
  GemmCall c = call_of(g, bf16_in, bf16_out);
  c.stream = worth_streaming(c);
#ifdef __x86_64__
  const Tier t = tier();
  if (t != Tier::plain && g.K > 0) {
    if (t == Tier::amx && bf16_in && few_rows(c)) return run_few_rows(c);
    return run_blocks(unit_for(bf16_in), c);
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

int64_t gemm_workspace(const Gemm& g, bool bf16_in) {
#ifdef __x86_64__
  if (tier() != Tier::plain && g.M > 0 && g.N > 0 && g.K > 0) {
    GemmCall c = call_of(g, bf16_in, false);
    const GemmUnit& unit = unit_for(bf16_in);
    const int threads = threads_for(c, unit.element_bytes == 2);
    unit.choose_blocks(&c, threads);
    return div_up(schedule_of(unit, c).bytes(threads), Memory::kHugePage) * Memory::kHugePage;
  }
#endif
  return 0;
}

}  // namespace wyvern::isa
