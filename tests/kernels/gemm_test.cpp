// Every form, type and tier of the matrix product against an F64 loop over the same (rounded) inputs; odd sizes, wide leading
// dimensions, edges guarded by unreadable pages, and the same bits from any number of threads and rows.
#include "kernels/cpu/isa/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/cpu/isa/tier.h"

namespace wyvern::isa {
namespace {

enum class Form { forward, dx, dw };               // x w^T, dy w, dy^T x
enum class Types { f32, bf16, bf16_f32 };
constexpr Form kForms[] = {Form::forward, Form::dx, Form::dw};
constexpr Types kTypes[] = {Types::f32, Types::bf16, Types::bf16_f32};

const char* name_of(Form f) { return f == Form::forward ? "forward" : f == Form::dx ? "dx" : "dw"; }
const char* name_of(Types t) { return t == Types::f32 ? "f32" : t == Types::bf16 ? "bf16" : "bf16_f32"; }

// Elements of `size` bytes that end at (or begin behind) a page nobody may touch.
class Guarded {
 public:
  Guarded(int64_t count, int64_t size, bool guard_end) : count_(count), size_(size) {
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = count * size, room = (bytes + page - 1) / page * page;
    mapped_ = room + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_t(mapped_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_, size_t(page), PROT_NONE);
    mprotect(base_ + page + room, size_t(page), PROT_NONE);
    data_ = base_ + page + (guard_end ? room - bytes : 0);
  }
  ~Guarded() { munmap(base_, size_t(mapped_)); }
  Guarded(const Guarded&) = delete;
  void* data() const { return data_; }
  int64_t count() const { return count_; }
  double get(int64_t i) const { return size_ == 2 ? double(float(static_cast<bf16*>(data())[i])) : double(static_cast<float*>(data())[i]); }
  void set(int64_t i, float x) {
    if (size_ == 2) static_cast<bf16*>(data())[i] = bf16(x);
    else static_cast<float*>(data())[i] = x;
  }

 private:
  int64_t count_, size_, mapped_;
  char *base_, *data_;
};

struct Case {
  Form form;
  Types types;
  int64_t M, N, K;
  bool bias = false, accumulate = false, guard_end = true;
  int64_t pad_a = 0, pad_b = 0, pad_c = 0;         // leading dimension beyond the width
};

constexpr float kCanary = 12345.0f;                // what lies between the rows of C

// A problem with its operands, its run and its check.
class Problem {
 public:
  explicit Problem(const Case& c)
      : c_(c), in_(c.types == Types::f32 ? 4 : 2), out_(c.types == Types::bf16 ? 2 : 4),
        lda_((c.form == Form::dw ? c.M : c.K) + c.pad_a), ldb_((c.form == Form::forward ? c.K : c.N) + c.pad_b), ldc_(c.N + c.pad_c),
        a_(span(c.form == Form::dw ? c.K : c.M, c.form == Form::dw ? c.M : c.K, lda_), in_, c.guard_end),
        b_(span(c.form == Form::forward ? c.N : c.K, c.form == Form::forward ? c.K : c.N, ldb_), in_, c.guard_end),
        bias_(c.N, in_, c.guard_end), y_(span(c.M, c.N, ldc_), out_, c.guard_end) {
    std::mt19937 random(uint32_t(c.M * 7919 + c.N * 131 + c.K));
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int64_t i = 0; i < a_.count(); i++) a_.set(i, draw(random));
    for (int64_t i = 0; i < b_.count(); i++) b_.set(i, draw(random));
    for (int64_t i = 0; i < bias_.count(); i++) bias_.set(i, draw(random));
    fill(kCanary);
    for (int64_t m = 0; m < c.M; m++)
      for (int64_t n = 0; n < c.N; n++) y_.set(m * ldc_ + n, c.accumulate ? 0.25f * float(m % 5) - float(n % 3) : NAN);
    for (int64_t i = 0; i < span(c.M, c.N, ldc_); i++) before_.push_back(y_.get(i));
  }

  void run(int64_t rows = -1) {
    const Gemm g = {.M = rows < 0 ? c_.M : rows, .N = c_.N, .K = c_.K, .a = a_.data(), .lda = lda_, .transpose_a = c_.form == Form::dw,
                    .b = b_.data(), .ldb = ldb_, .transpose_b = c_.form == Form::forward, .c = y_.data(), .ldc = ldc_,
                    .bias = c_.bias ? bias_.data() : nullptr, .accumulate = c_.accumulate};
    if (c_.types == Types::f32) gemm_f32(g);
    else if (c_.types == Types::bf16) gemm_bf16(g);
    else gemm_bf16_f32(g);
  }

  // f32 sums of K products lose about sqrt(K) roundings of a term each, and a term is of the size of the result over sqrt(K);
  // a bf16 result is rounded once more, by 2^-8 of itself at most (8 bits).
  void check() const {
    double error = 0, norm = 0, worst = 0;
    for (int64_t m = 0; m < c_.M; m++)
      for (int64_t n = 0; n < c_.N; n++) {
        const double want = expected(m, n), got = y_.get(m * ldc_ + n);
        ASSERT_TRUE(std::isfinite(got)) << describe() << " at " << m << ", " << n;
        error += (got - want) * (got - want);
        norm += want * want;
        const double half_ulp = out_ == 2 ? std::abs(want) / 256 : 0;
        worst = std::max(worst, std::abs(got - want) - half_ulp);
      }
    const double sums = std::sqrt(double(c_.K) + 1) * 1.2e-7;
    const double scale = std::sqrt(norm / double(std::max<int64_t>(1, c_.M * c_.N))) + 1;
    EXPECT_LE(std::sqrt(error), (sums + (out_ == 2 ? 1.0 / 256 : 0)) * std::sqrt(norm) + 1e-30) << describe();
    EXPECT_LE(worst, 8 * sums * scale) << describe();
    for (int64_t i = 0; i < int64_t(before_.size()); i++)
      ASSERT_TRUE(i % ldc_ < c_.N || y_.get(i) == before_[size_t(i)]) << describe() << ": wrote beyond the row, at " << i;
  }

  std::vector<double> result() const {
    std::vector<double> r;
    for (int64_t m = 0; m < c_.M; m++)
      for (int64_t n = 0; n < c_.N; n++) r.push_back(y_.get(m * ldc_ + n));
    return r;
  }

  std::string describe() const {
    return fmt::format("{} {} {} M {} N {} K {}{}{} pads {} {} {}", isa::name_of(tier()), name_of(c_.form), name_of(c_.types), c_.M, c_.N,
                       c_.K, c_.bias ? " bias" : "", c_.accumulate ? " accumulate" : "", c_.pad_a, c_.pad_b, c_.pad_c);
  }

 private:
  static int64_t span(int64_t rows, int64_t columns, int64_t ld) { return rows == 0 ? 0 : (rows - 1) * ld + columns; }
  void fill(float x) {
    for (int64_t i = 0; i < span(c_.M, c_.N, ldc_); i++) y_.set(i, x);
  }
  double expected(int64_t m, int64_t n) const {
    double sum = c_.bias ? bias_.get(n) : c_.accumulate ? before_[size_t(m * ldc_ + n)] : 0;
    for (int64_t k = 0; k < c_.K; k++)
      sum += a_.get(c_.form == Form::dw ? k * lda_ + m : m * lda_ + k) * b_.get(c_.form == Form::forward ? n * ldb_ + k : k * ldb_ + n);
    return sum;
  }

  Case c_;
  int64_t in_, out_, lda_, ldb_, ldc_;
  Guarded a_, b_, bias_, y_;
  std::vector<double> before_;
};

void expect_right(const Case& c) {
  Problem p(c);
  p.run();
  p.check();
}

class GemmTest : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    if (GetParam() > detected_tier()) GTEST_SKIP() << "this machine has no " << isa::name_of(GetParam());
    before_ = tier();
    threads_ = omp_get_max_threads();
    force_tier(GetParam());
  }
  void TearDown() override {
    if (GetParam() > detected_tier()) return;
    force_tier(before_);
    omp_set_num_threads(threads_);
  }
  Tier before_ = Tier::plain;
  int threads_ = 1;
};

TEST_P(GemmTest, OddSizesInEveryForm) {
  constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 33, 48, 64, 65, 97, 127, 130};
  std::mt19937 random(3);
  const auto size = [&] { return kSizes[random() % std::size(kSizes)]; };
  for (Form form : kForms)
    for (Types types : kTypes)
      for (int i = 0; i < 40; i++) {
        const bool each = i < 13;                          // every size in every place, then at random
        const int64_t M = each ? kSizes[i] : size(), N = each ? kSizes[(i * 5) % 13] : size(), K = each ? kSizes[(i * 8 + 3) % 13] : size();
        expect_right({.form = form, .types = types, .M = M, .N = N, .K = K, .bias = i % 3 == 0, .accumulate = i % 3 == 1,
                      .guard_end = i % 2 == 0});
      }
}

// Sizes that take more than one block of every dimension, with tails: k beyond two blocks, columns beyond one, rows of several tasks.
TEST_P(GemmTest, MoreThanOneBlock) {
  if (GetParam() == Tier::plain) GTEST_SKIP() << "the plain loop has no blocks";
  for (Form form : kForms)
    for (Types types : kTypes) {
      expect_right({.form = form, .types = types, .M = 101, .N = 70, .K = 1701, .bias = true});
      expect_right({.form = form, .types = types, .M = 53, .N = 37, .K = 2201, .bias = form == Form::dx, .accumulate = form == Form::dw});
      expect_right({.form = form, .types = types, .M = 50, .N = 801, .K = 67, .accumulate = true});
      expect_right({.form = form, .types = types, .M = 1003, .N = 37, .K = 45});
      expect_right({.form = form, .types = types, .M = 97, .N = 65, .K = 900, .accumulate = true});
      expect_right({.form = form, .types = types, .M = 21, .N = 19, .K = 2201, .accumulate = true});           // one ragged block of C
    }
}

TEST_P(GemmTest, RowsMayLieApart) {
  for (Form form : kForms)
    for (Types types : kTypes) {
      expect_right({.form = form, .types = types, .M = 67, .N = 49, .K = 70, .accumulate = true, .pad_a = 5, .pad_b = 3, .pad_c = 7});
      expect_right({.form = form, .types = types, .M = 96, .N = 64, .K = 64, .bias = true, .pad_a = 64, .pad_b = 32, .pad_c = 96});
      expect_right({.form = form, .types = types, .M = 3, .N = 49, .K = 70, .bias = true, .pad_a = 5, .pad_b = 3, .pad_c = 7});
    }
}

// A product whose answer is known without a second loop, exactly even in bf16: row m of A holds (1 + m % 3) / 2, column n of B
// holds (n % 7) / 4; K / 8 a power of two.
template <class In, class Out> void expect_known(Form form, int64_t M, int64_t N, int64_t K, int64_t ldc, void (*product)(const Gemm&)) {
  const auto a_of = [](int64_t m) { return In(0.5f * float(1 + m % 3)); };
  const auto b_of = [](int64_t n) { return In(0.25f * float(n % 7)); };
  std::vector<In> a(size_t(M * K)), b(size_t(N * K));
  for (int64_t i = 0; i < M * K; i++) a[size_t(i)] = a_of(form == Form::dw ? i % M : i / K);
  for (int64_t i = 0; i < N * K; i++) b[size_t(i)] = b_of(form == Form::forward ? i / K : i % N);
  const size_t bytes = (size_t(M * ldc) * sizeof(Out) + 63) / 64 * 64;
  std::unique_ptr<Out, decltype(&std::free)> c(static_cast<Out*>(std::aligned_alloc(64, bytes)), &std::free);
  std::memset(static_cast<void*>(c.get()), 0xff, bytes);                     // NaN
  product({.M = M, .N = N, .K = K, .a = a.data(), .lda = form == Form::dw ? M : K, .transpose_a = form == Form::dw, .b = b.data(),
           .ldb = form == Form::forward ? K : N, .transpose_b = form == Form::forward, .c = c.get(), .ldc = ldc});
  int64_t wrong = 0, outside = 0;
  for (int64_t i = 0; i < M * ldc; i++) {
    const float x = float(c.get()[i]);
    if (i % ldc < N) wrong += x != float(K) * float(a_of(i / ldc)) * float(b_of(i % ldc));
    else outside += !std::isnan(x);
  }
  EXPECT_EQ(wrong, 0) << name_of(form) << " " << M << " " << N << " " << K;
  EXPECT_EQ(outside, 0) << name_of(form) << " " << M << " " << N << " " << K;
}
void expect_known(Types types, Form form, int64_t M, int64_t N, int64_t K, int64_t ldc) {
  if (types == Types::f32) expect_known<float, float>(form, M, N, K, ldc, gemm_f32);
  else if (types == Types::bf16) expect_known<bf16, bf16>(form, M, N, K, ldc, gemm_bf16);
  else expect_known<bf16, float>(form, M, N, K, ldc, gemm_bf16_f32);
}

// Large enough that C is written past the caches, where the tier does that, whole and with a ragged edge.
TEST_P(GemmTest, LargeResults) {
  if (GetParam() == Tier::plain) GTEST_SKIP() << "nothing new, and slow";
  for (Types types : kTypes)
    for (int64_t N : {2048, 2040}) expect_known(types, Form::forward, 1100, N, 32, 2048);
}

// So large that packed operands exist only in part at one time: B by ranges of columns, a transposed A by ranges of rows.
TEST_P(GemmTest, OperandsBeyondTheWorkspace) {
  if (GetParam() == Tier::plain) GTEST_SKIP() << "nothing new, and slow";
  for (Types types : {Types::f32, Types::bf16}) {
    expect_known(types, Form::forward, 33, 17501, 1024, 17501);
    expect_known(types, Form::dw, 17501, 33, 1024, 33);
  }
}

TEST_P(GemmTest, NothingToDo) {
  for (Types types : kTypes) {
    for (int64_t M : {0, 3})
      for (int64_t N : {0, 5}) expect_right({.form = Form::forward, .types = types, .M = M, .N = N, .K = 4});
    expect_right({.form = Form::forward, .types = types, .M = 3, .N = 20, .K = 0});                        // zeros
    expect_right({.form = Form::dw, .types = types, .M = 3, .N = 20, .K = 0, .bias = true});               // the bias
    expect_right({.form = Form::dx, .types = types, .M = 3, .N = 20, .K = 0, .accumulate = true});         // C as it was
  }
}

TEST_P(GemmTest, TheBitsDoNotDependOnThreads) {
  for (Form form : kForms)
    for (Types types : kTypes) {
      const Case c = {.form = form, .types = types, .M = 401, .N = 209, .K = 911, .accumulate = form == Form::dw};
      Problem one(c), two(c), three(c);
      omp_set_num_threads(1);
      one.run();
      omp_set_num_threads(2);
      two.run();
      omp_set_num_threads(3);
      three.run();
      EXPECT_EQ(one.result(), two.result()) << one.describe();
      EXPECT_EQ(one.result(), three.result()) << one.describe();
    }
}

// A row comes out the same whether it is computed alone, with a few others or with many (prefill and decoding of one text).
TEST_P(GemmTest, TheBitsOfARowDoNotDependOnTheOthers) {
  for (Form form : {Form::forward, Form::dx})
    for (Types types : kTypes) {
      const Case c = {.form = form, .types = types, .M = 150, .N = 77, .K = 911, .bias = true};
      Problem all(c);
      all.run();
      const std::vector<double> want = all.result();
      for (int64_t rows : {1, 7, 16, 17, 49}) {
        Problem some(c);
        some.run(rows);
        std::vector<double> got = some.result();
        got.resize(size_t(rows * c.N));
        EXPECT_EQ(got, std::vector<double>(want.begin(), want.begin() + rows * c.N)) << all.describe() << ", " << rows << " rows";
      }
    }
}

// A NaN or infinity in one row of A reaches that row of C and no other, whatever shares its tiles and panels.
TEST_P(GemmTest, NotFiniteStaysInItsRow) {
  for (Types types : kTypes) {
    const int64_t M = 37, N = 41, K = 50;
    std::vector<float> a32(size_t(M * K), 0.5f), b32(size_t(N * K), 0.5f), y32(size_t(M * N));
    a32[size_t(5 * K + 49)] = NAN;
    a32[size_t(20 * K)] = INFINITY;
    std::vector<bf16> a16(a32.begin(), a32.end()), b16(b32.begin(), b32.end()), y16(size_t(M * N));
    const bool f32 = types == Types::f32, half = types == Types::bf16;
    const void *a = a16.data(), *b = b16.data();
    if (f32) a = a32.data(), b = b32.data();
    void* y = y32.data();
    if (half) y = y16.data();
    const Gemm g = {.M = M, .N = N, .K = K, .a = a, .lda = K, .transpose_a = false, .b = b, .ldb = K, .transpose_b = true,
                    .c = y, .ldc = N};
    f32 ? gemm_f32(g) : half ? gemm_bf16(g) : gemm_bf16_f32(g);
    for (int64_t i = 0; i < M * N; i++) {
      const float x = half ? float(y16[size_t(i)]) : y32[size_t(i)];
      if (i / N == 5) EXPECT_TRUE(std::isnan(x));
      else if (i / N == 20) EXPECT_EQ(x, INFINITY);
      else EXPECT_EQ(x, 12.5f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, GemmTest, ::testing::Values(Tier::plain, Tier::avx2, Tier::avx512, Tier::amx),
                         [](const auto& info) { return std::string(isa::name_of(info.param)); });

}  // namespace
}  // namespace wyvern::isa
