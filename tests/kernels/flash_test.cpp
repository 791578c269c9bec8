// Flash attention on the matrix unit against a naive double attention on the same bf16 inputs, and against the error that
// a naive attention makes which stores every intermediate in bf16.
#include "kernels/cpu/isa/flash.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/cpu/isa/tier.h"

namespace wyvern {
namespace {

struct Case {
  int64_t B = 2, T = 64, H = 2, Hkv = 2, D = 64;
  int64_t window = 0;
  double softcap = 0, dropout = 0;
  std::vector<int32_t> documents;       // row offsets inside the whole batch; empty: one document per sequence
  double spread = 1;                    // standard deviation of q: large values exercise the running maximum
};

constexpr uint16_t kCanary = 0x7fa5;    // a bf16 NaN: reading a gap shows in the result, writing one shows in the gap

// A (N, width) bf16 matrix whose columns are all gap until they are filled.
struct Matrix {
  Matrix(int64_t rows, int64_t columns) : width(columns), values(size_t(rows * columns)) {
    for (bf16& v : values) v.bits = kCanary;
  }
  Tensor tensor() { return view(values.data(), DType::bf16, {int64_t(values.size()) / width, width}); }
  bf16& at(int64_t n, int64_t c) { return values[size_t(n * width + c)]; }
  int64_t width;
  std::vector<bf16> values;
};

// q, k, v fused in one matrix with gaps around every part, the same for their gradients.
struct Problem {
  static constexpr int64_t kGap = 5;
  explicit Problem(const Case& c)
      : shape{.H = c.H, .Hkv = c.Hkv, .D = c.D, .T = c.T, .scale = 1 / std::sqrt(double(c.D)), .window = c.window, .softcap = c.softcap,
              .dropout = c.dropout, .key = 0x1234567890abcdefull, .first_sequence = 3, .first_head = 2},
        N(c.B * c.T), k0(2 * kGap + c.H * c.D), v0(k0 + kGap + c.Hkv * c.D), width(v0 + kGap + c.Hkv * c.D), qkv(N, width), grads(N, width),
        out(N + 2, c.H * c.D), dout(N, c.H * c.D), lse(size_t(N * c.H), 0.0f), documents(c.documents) {
    if (documents.empty())
      for (int64_t b = 0; b <= c.B; b++) documents.push_back(int32_t(b * c.T));
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    for (int64_t n = 0; n < N; n++) {
      for (int64_t i = 0; i < c.H * c.D; i++) qkv.at(n, kGap + i) = bf16(float(c.spread) * normal(rng)), dout.at(n, i) = bf16(normal(rng));
      for (int64_t i = 0; i < c.Hkv * c.D; i++) qkv.at(n, k0 + i) = bf16(normal(rng)), qkv.at(n, v0 + i) = bf16(normal(rng));
    }
  }
  Tensor out_rows() { return rows(out.tensor(), 1, N + 1); }
  Tensor lse_rows() { return view(lse.data(), DType::f32, {N, shape.H}); }
  Tensor doc_starts() { return view(documents.data(), DType::i32, {int64_t(documents.size())}); }
  void run() {
    const Columns q{qkv.tensor(), kGap}, k{qkv.tensor(), k0}, v{qkv.tensor(), v0};
    isa::flash_forward({.out = out_rows(), .lse = lse_rows(), .q = q, .k = k, .v = v, .doc_starts = doc_starts(), .shape = shape});
    isa::flash_backward({.dq = {grads.tensor(), kGap}, .dk = {grads.tensor(), k0}, .dv = {grads.tensor(), v0}, .dout = dout.tensor(),
                         .out = out_rows(), .lse = lse_rows(), .q = q, .k = k, .v = v, .doc_starts = doc_starts(), .shape = shape});
  }
  // First row of the document of row n.
  int64_t document(int64_t n) const {
    int64_t start = 0;
    for (int32_t s : documents) start = s <= n ? s : start;
    return start;
  }

  AttentionShape shape;
  int64_t N, k0, v0, width;
  Matrix qkv, grads, out, dout;
  std::vector<float> lse;
  std::vector<int32_t> documents;
};

struct Result {
  std::vector<double> out, lse, dq, dk, dv;
};

// The definition, in double. With `rounded`, every intermediate that a materialised bf16 attention stores is rounded to bf16.
Result naive(Problem& p, bool rounded) {
  const auto r = [rounded](double x) { return rounded ? double(float(bf16(float(x)))) : x; };
  const AttentionShape& s = p.shape;
  const int64_t HD = s.H * s.D, KD = s.Hkv * s.D;
  Result z{std::vector<double>(size_t(p.N * HD)), std::vector<double>(size_t(p.N * s.H)), std::vector<double>(size_t(p.N * HD)),
           std::vector<double>(size_t(p.N * KD)), std::vector<double>(size_t(p.N * KD))};
  const auto value = [&](int64_t n, int64_t column) { return double(float(p.qkv.at(n, column))); };
  for (int64_t h = 0; h < s.H; h++)
    for (int64_t n = 0; n < p.N; n++) {
      const int64_t kv = h / (s.H / s.Hkv), q0 = Problem::kGap + h * s.D, kc = p.k0 + kv * s.D, vc = p.v0 + kv * s.D;
      const int64_t first = s.window ? std::max(p.document(n), n - s.window + 1) : p.document(n), count = n - first + 1;
      std::vector<double> probs(static_cast<size_t>(count)), slope(probs), keep(probs.size(), 1.0), dprobs(probs);
      double top = -INFINITY, total = 0;
      for (int64_t j = 0; j < count; j++) {
        double x = 0;
        for (int64_t d = 0; d < s.D; d++) x += value(n, q0 + d) * value(first + j, kc + d);
        x = r(x * s.scale);
        const double t = s.softcap > 0 ? std::tanh(x / s.softcap) : 0;
        probs[size_t(j)] = s.softcap > 0 ? r(s.softcap * t) : x;
        slope[size_t(j)] = 1 - t * t;
        top = std::max(top, probs[size_t(j)]);
        const int64_t key = (first + j) % s.T;
        const auto sequence = uint32_t(s.first_sequence + n / s.T), head = uint32_t(s.first_head + h);
        const auto words = philox(s.key, sequence, head, uint32_t(n % s.T), uint32_t(key / 4));
        if (s.dropout > 0) keep[size_t(j)] = words[size_t(key % 4)] < drop_threshold(s.dropout) ? 0 : 1 / (1 - s.dropout);
      }
      for (double& x : probs) total += x = std::exp(x - top);
      for (double& x : probs) x = r(x / total);
      z.lse[size_t(n * s.H + h)] = top + std::log(total);
      double delta = 0;
      for (int64_t d = 0; d < s.D; d++) {
        double o = 0;
        for (int64_t j = 0; j < count; j++) o += probs[size_t(j)] * keep[size_t(j)] * value(first + j, vc + d);
        z.out[size_t(n * HD + h * s.D + d)] = r(o);
      }
      for (int64_t j = 0; j < count; j++) {
        double x = 0;
        for (int64_t d = 0; d < s.D; d++) x += double(float(p.dout.at(n, h * s.D + d))) * value(first + j, vc + d);
        dprobs[size_t(j)] = r(x * keep[size_t(j)]);
        delta += probs[size_t(j)] * dprobs[size_t(j)];
      }
      for (int64_t j = 0; j < count; j++) {
        const double ds = r(probs[size_t(j)] * (dprobs[size_t(j)] - delta) * slope[size_t(j)] * s.scale);
        const double kept = r(probs[size_t(j)] * keep[size_t(j)]);
        for (int64_t d = 0; d < s.D; d++) {
          z.dq[size_t(n * HD + h * s.D + d)] += ds * value(first + j, kc + d);
          z.dk[size_t((first + j) * KD + kv * s.D + d)] += ds * value(n, q0 + d);
          z.dv[size_t((first + j) * KD + kv * s.D + d)] += kept * double(float(p.dout.at(n, h * s.D + d)));
        }
      }
    }
  for (std::vector<double>* g : {&z.dq, &z.dk, &z.dv})
    for (double& x : *g) x = r(x);
  return z;
}

Result result_of(Problem& p) {
  Result z;
  const AttentionShape& s = p.shape;
  for (int64_t n = 0; n < p.N; n++) {
    for (int64_t i = 0; i < s.H * s.D; i++) z.out.push_back(p.out.at(n + 1, i)), z.dq.push_back(p.grads.at(n, Problem::kGap + i));
    for (int64_t i = 0; i < s.Hkv * s.D; i++) z.dk.push_back(p.grads.at(n, p.k0 + i)), z.dv.push_back(p.grads.at(n, p.v0 + i));
  }
  z.lse.assign(p.lse.begin(), p.lse.end());
  return z;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}
double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(b.size());
  for (size_t i = 0; i < b.size(); i++) difference[i] = a[i] - b[i];
  return norm(difference) / norm(b);
}

void expect_canaries(Problem& p) {
  for (int64_t n = 0; n < p.N; n++)
    for (int64_t g = 0; g < Problem::kGap; g++)
      for (int64_t start : {int64_t(0), p.k0 - Problem::kGap, p.v0 - Problem::kGap, p.width - Problem::kGap})
        ASSERT_EQ(p.grads.at(n, start + g).bits, kCanary) << "row " << n << ", column " << start + g;
  for (int64_t i = 0; i < p.out.width; i++) {
    ASSERT_EQ(p.out.at(0, i).bits, kCanary);
    ASSERT_EQ(p.out.at(p.N + 1, i).bits, kCanary);
  }
}

void expect_close(const char* name, const std::vector<double>& got, const std::vector<double>& exact, const std::vector<double>& rounded,
                  double bound) {
  const double error = relative_error(got, exact);
  EXPECT_LT(error, bound) << name;                                            // NaN fails
  EXPECT_LE(error, 2 * relative_error(rounded, exact) + 1e-5) << name;        // numerics handbook, section 4
}

void check(const Case& c) {
  SCOPED_TRACE(testing::Message() << "B " << c.B << " T " << c.T << " H " << c.H << "/" << c.Hkv << " D " << c.D << " window " << c.window
                                  << " softcap " << c.softcap << " dropout " << c.dropout << " documents " << c.documents.size());
  Problem p(c);
  ASSERT_TRUE(isa::flash_supports(p.shape, DType::bf16));
  p.run();
  const Result got = result_of(p), exact = naive(p, false), rounded = naive(p, true);
  expect_close("out", got.out, exact.out, rounded.out, 5e-3);
  for (size_t i = 0; i < exact.lse.size(); i++) ASSERT_NEAR(got.lse[i], exact.lse[i], 1e-4 * (1 + std::abs(exact.lse[i]))) << "lse " << i;
  if (c.T == 1 || c.window == 1) {      // one key: the softmax is constant, dq and dk are rounding noise around zero
    EXPECT_LT(norm(got.dq), 1e-2 * norm(exact.dv));
    EXPECT_LT(norm(got.dk), 1e-2 * norm(exact.dv));
  } else {
    expect_close("dq", got.dq, exact.dq, rounded.dq, 1e-2);
    expect_close("dk", got.dk, exact.dk, rounded.dk, 1e-2);
  }
  expect_close("dv", got.dv, exact.dv, rounded.dv, 1e-2);
  expect_canaries(p);
}

class Flash : public testing::Test {
 protected:
  void SetUp() override {
    if (isa::tier() != isa::Tier::amx) GTEST_SKIP() << "this CPU has no usable AMX (or WYVERN_CPU_TIER is lower)";
  }
};

TEST_F(Flash, Lengths) {
  for (int64_t T : {1, 17, 31, 32, 33, 64, 65, 129, 200, 300}) check({.T = T});
}
TEST_F(Flash, HeadSizes) {
  for (int64_t D : {16, 32, 48, 64, 80, 96, 112, 128, 256}) check({.B = 1, .T = 70, .D = D});
}
TEST_F(Flash, GroupedQueries) {
  check({.T = 70, .H = 4, .Hkv = 2});
  check({.T = 129, .H = 4, .Hkv = 1, .D = 32});
}
TEST_F(Flash, Window) {
  for (int64_t window : {1, 5, 31, 32, 33, 63, 64, 100, 199, 200, 500}) check({.B = 1, .T = 200, .D = 32, .window = window});
  for (int64_t window : {31, 40, 129}) check({.B = 1, .T = 333, .D = 16, .window = window});       // whole blocks of keys are skipped
  check({.B = 1, .T = 333, .D = 16, .window = 150});
}
TEST_F(Flash, Softcap) {
  check({.T = 129, .softcap = 15});
  check({.T = 70, .softcap = 2, .spread = 4});                 // saturated: the slope of tanh is far from 1
}
TEST_F(Flash, LargeScores) { check({.T = 300, .spread = 12}); }
TEST_F(Flash, Documents) {
  check({.B = 2, .T = 100, .documents = {0, 1, 34, 37, 99, 100, 131, 200}});
  check({.B = 2, .T = 100, .H = 4, .Hkv = 2, .D = 32, .window = 20, .documents = {0, 70, 100, 101, 200}});
}
TEST_F(Flash, Dropout) {
  check({.T = 129, .dropout = 0.1});
  check({.T = 200, .H = 4, .Hkv = 2, .D = 32, .dropout = 0.5});
}
TEST_F(Flash, EverythingAtOnce) {
  check({.B = 2, .T = 150, .H = 4, .Hkv = 2, .D = 48, .window = 40, .softcap = 15, .dropout = 0.2,
         .documents = {0, 5, 50, 52, 150, 151, 290, 300}, .spread = 2});
}

TEST_F(Flash, ThreadsDoNotChangeTheBits) {
  const int before = omp_get_max_threads();
  const Case c{.B = 2, .T = 150, .H = 4, .Hkv = 2, .D = 64, .dropout = 0.1};
  Problem one(c), two(c);
  omp_set_num_threads(1);
  one.run();
  omp_set_num_threads(2);
  two.run();
  omp_set_num_threads(before);
  for (size_t i = 0; i < one.grads.values.size(); i++) ASSERT_EQ(one.grads.values[i].bits, two.grads.values[i].bits);
  for (size_t i = 0; i < one.out.values.size(); i++) ASSERT_EQ(one.out.values[i].bits, two.out.values[i].bits);
  ASSERT_EQ(one.lse, two.lse);
}

TEST_F(Flash, NanSpreadsToItsReadersOnly) {
  Problem p({.B = 1, .T = 70, .H = 1, .Hkv = 1, .D = 32});
  p.qkv.at(40, p.k0 + 3) = bf16(NAN);
  p.run();
  for (int64_t n = 0; n < p.N; n++) {
    EXPECT_EQ(std::isnan(float(p.out.at(n + 1, 0))), n >= 40) << "row " << n;
    EXPECT_EQ(std::isnan(p.lse[size_t(n)]), n >= 40) << "row " << n;
  }
}

TEST(FlashSupport, SaysNo) {
  AttentionShape s{.H = 2, .Hkv = 2, .D = 64, .T = 8, .scale = 1};
  EXPECT_FALSE(isa::flash_supports(s, DType::f32));
  EXPECT_FALSE(isa::flash_supports(s, DType::f64));
  s.D = 40;
  EXPECT_FALSE(isa::flash_supports(s, DType::bf16));
  s.D = 272;
  EXPECT_FALSE(isa::flash_supports(s, DType::bf16));
}

}  // namespace
}  // namespace wyvern
