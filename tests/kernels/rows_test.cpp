// The row kernels of every instruction tier this machine runs, in both storage types, against the same formulas in double on
// the same stored inputs. Every output lies between canaries, and lengths cover every tail.
#include "kernels/cpu/isa/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/cpu/isa/tier.h"

namespace wyvern {
namespace {

using isa::RowKernels;
using isa::Tier;

const std::vector<int64_t> kLengths = [] {
  std::vector<int64_t> n;
  for (int64_t i = 0; i <= 67; i++) n.push_back(i);
  n.push_back(768);
  return n;
}();

template <class T> const RowKernels<T>& table(Tier tier) {
  const Tier before = isa::tier();
  isa::force_tier(tier);
  const RowKernels<T>& t = isa::rows<T>();
  isa::force_tier(before);
  return t;
}

// One stored value: what rounding to T may cost, and what f32 arithmetic may.
template <class T> constexpr double kRounding = std::is_same_v<T, float> ? 1.2e-7 : 3.95e-3;     // 2^-23, just over 2^-8
constexpr double kArithmetic = 1e-6;

// n elements in the middle of a buffer of canaries.
template <class T> class Row {
 public:
  explicit Row(int64_t n) : n_(n), storage_(size_t(n) + 2 * kGuard, T(kCanary)) {}
  Row(int64_t n, unsigned seed, double spread = 1) : Row(n) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < n; i++) (*this)[i] = T(float(spread * normal(rng)));
  }
  T* data() { return storage_.data() + kGuard; }
  operator T*() { return data(); }  // NOLINT: stands for the pointer it guards
  T& operator[](int64_t i) { return data()[i]; }
  double at(int64_t i) const { return double(float(storage_[size_t(i) + kGuard])); }
  bool intact() const {
    for (size_t i = 0; i < kGuard; i++)
      if (float(storage_[i]) != kCanary || float(storage_[storage_.size() - 1 - i]) != kCanary) return false;
    return true;
  }
  int64_t size() const { return n_; }

 private:
  static constexpr size_t kGuard = 19;             // odd: nothing is aligned
  static constexpr float kCanary = -1.9375f;
  int64_t n_;
  std::vector<T> storage_;
};

// |got - want| <= rounding of the result + f32 errors of terms of size `scale`.
template <class T, class F> void expect_row(const Row<T>& got, F&& want, double scale = 1, const char* what = "") {
  EXPECT_TRUE(got.intact()) << what << " wrote beyond its " << got.size() << " elements";
  for (int64_t i = 0; i < got.size(); i++) {
    const double w = want(i);
    const double allowed = kRounding<T> * std::abs(w) + kArithmetic * (std::abs(w) + scale);
    ASSERT_NEAR(got.at(i), w, allowed) << what << " element " << i << " of " << got.size();
  }
}

// Runs a body for every storage type and tier.
template <class T> class Rows : public testing::Test {
 protected:
  template <class F> void each_tier(F&& body) {
    for (Tier tier : {Tier::plain, Tier::avx2, Tier::avx512}) {
      if (tier > isa::detected_tier()) continue;
      SCOPED_TRACE(isa::name_of(tier));
      body(table<T>(tier));
    }
  }
  template <class F> void each(F&& body) {
    each_tier([&](const RowKernels<T>& k) {
      for (int64_t n : kLengths) body(k, n);
    });
  }
};
using Storage = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Rows, Storage);

TYPED_TEST(Rows, Conversions) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> x(n, 1), narrow(n);
    Row<float> f(n, 2), wide(n);
    k.widen(wide, x, n);
    k.narrow(narrow, f, n);
    for (int64_t i = 0; i < n; i++) {
      ASSERT_EQ(wide[i], float(x[i]));
      ASSERT_EQ(float(narrow[i]), float(T(f[i])));               // the same rounding as the scalar conversion, bit for bit
    }
    EXPECT_TRUE(wide.intact() && narrow.intact());
  });
}

TYPED_TEST(Rows, NarrowRoundsToNearestEven) {
  using T = TypeParam;
  this->each_tier([](const RowKernels<T>& k) {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> x = {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, 1.003907f, 3.4e38f, -3.4e38f, 1e-40f, 3.3895314e38f};
    x.insert(x.end(), {inf, -inf, nan, -nan});
    std::vector<T> y(x.size());
    k.narrow(y.data(), x.data(), int64_t(x.size()));
    for (size_t i = 0; i < x.size(); i++) {
      const float want = float(T(x[i])), got = float(y[i]);
      if (std::isnan(want)) EXPECT_TRUE(std::isnan(got));
      else EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << x[i];
    }
  });
}

TYPED_TEST(Rows, Add) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> a(n, 1), b(n, 2), y(n);
    k.add(y, a, b, n);
    expect_row(y, [&](int64_t i) { return a.at(i) + b.at(i); });
    Row<T> in_place = a;
    k.add(in_place, in_place, b, n);
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(in_place.at(i), y.at(i));
  });
}

TYPED_TEST(Rows, SumSquares) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> x(n, 3);
    double want = 0;
    for (int64_t i = 0; i < n; i++) want += x.at(i) * x.at(i);
    EXPECT_NEAR(k.sum_squares(x, n), want, 1e-13 * want);
  });
}

struct Statistics {
  double mean = 0, rstd = 0;
};
template <class T> Statistics statistics(const Row<T>& x, bool layer, double eps) {
  const auto n = double(x.size());
  Statistics s;
  if (layer)
    for (int64_t i = 0; i < x.size(); i++) s.mean += x.at(i) / n;
  double variance = 0;
  for (int64_t i = 0; i < x.size(); i++) variance += (x.at(i) - s.mean) * (x.at(i) - s.mean) / n;
  s.rstd = 1 / std::sqrt(variance + eps);
  return s;
}

TYPED_TEST(Rows, NormForward) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t D) {
    if (D == 0) return;
    for (bool layer : {false, true})
      for (bool weights : {false, true})
        for (bool fused : {false, true}) {
          Row<T> a(D, 1), b_add(D, 2), x(D, 3), out(D);
          for (int64_t i = 0; i < D; i++) x[i] = T(float(x[i]) + 3);      // an offset that a one-pass variance would suffer from
          Row<float> w(D, 4), b(D, 5);
          float rstd = 0, mean = 0;
          k.norm_forward(out, &rstd, layer ? &mean : nullptr, x, fused ? a.data() : nullptr, fused ? b_add.data() : nullptr,
                         weights ? w.data() : nullptr, weights && layer ? b.data() : nullptr, D, 1e-5f);
          if (fused) expect_row(x, [&](int64_t i) { return a.at(i) + b_add.at(i); }, 1, "x");
          const Statistics s = statistics(x, layer, 1e-5);
          EXPECT_NEAR(mean, s.mean, 1e-6 * (1 + std::abs(s.mean)));
          EXPECT_NEAR(rstd, s.rstd, 5e-6 * s.rstd);
          const auto want = [&](int64_t i) {
            return (x.at(i) - s.mean) * s.rstd * (weights ? w.at(i) : 1) + (weights && layer ? b.at(i) : 0);
          };
          expect_row(out, want, 20, "out");                               // x - mean cancels: values of size 3 times rstd
        }
  });
}

TYPED_TEST(Rows, NormBackward) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t D) {
    if (D == 0) return;
    for (bool layer : {false, true})
      for (bool weights : {false, true})
        for (bool add : {false, true}) {
          Row<T> x(D, 1), dout(D, 2), dx(D, 3), before = dx;
          Row<float> w(D, 4), dw(D, 5), db(D, 6), dw_before = dw, db_before = db;
          const Statistics s = statistics(x, layer, 1e-2);
          const float mean = float(s.mean);
          k.norm_backward(dx, weights ? dw.data() : nullptr, weights && layer ? db.data() : nullptr, dout, x, float(s.rstd),
                          layer ? &mean : nullptr, weights ? w.data() : nullptr, D, add);
          double avg = 0, slope = 0;
          const auto xhat = [&](int64_t i) { return (x.at(i) - s.mean) * s.rstd; };
          const auto g = [&](int64_t i) { return dout.at(i) * (weights ? w.at(i) : 1); };
          for (int64_t i = 0; i < D; i++) avg += layer ? g(i) / double(D) : 0, slope += g(i) * xhat(i) / double(D);
          const double scale = s.rstd * 10;                               // the three terms cancel
          expect_row(dx, [&](int64_t i) { return s.rstd * (g(i) - avg - xhat(i) * slope) + (add ? before.at(i) : 0); }, scale, "dx");
          expect_row(dw, [&](int64_t i) { return dw_before.at(i) + (weights ? dout.at(i) * xhat(i) : 0); }, 10, "dw");
          expect_row(db, [&](int64_t i) { return db_before.at(i) + (weights && layer ? dout.at(i) : 0); }, 1, "db");
        }
  });
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TYPED_TEST(Rows, Gelu) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> x(n, 1, 3), dy(n, 2), y(n), dx(n);
    k.gelu_forward(y, x, n);
    expect_row(y, [&](int64_t i) { return gelu(x.at(i)); }, 0.01, "gelu");
    k.gelu_backward(dx, dy, x, n);
    expect_row(dx, [&](int64_t i) { return dy.at(i) * gelu_slope(x.at(i)); }, 5, "dgelu");     // dy up to 3, slope' * x up to 2
    Row<T> in_place = dy;
    k.gelu_backward(in_place, in_place, x, n);
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(in_place.at(i), dx.at(i));
  });
}

TYPED_TEST(Rows, Swiglu) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t F) {
    Row<T> x(2 * F, 1, 3), dy(F, 2), y(F), dx(2 * F);
    const auto sigma = [&](int64_t i) { return 1 / (1 + std::exp(-x.at(i))); };
    k.swiglu_forward(y, x, F);
    expect_row(y, [&](int64_t i) { return x.at(F + i) * x.at(i) * sigma(i); }, 0.01, "swiglu");
    k.swiglu_backward(dx, dy, x, F);
    expect_row(dx, [&](int64_t i) {
      if (i >= F) return dy.at(i - F) * x.at(i - F) * sigma(i - F);
      return dy.at(i) * x.at(F + i) * sigma(i) * (1 + x.at(i) * (1 - sigma(i)));
    }, 3, "dswiglu");
  });
}

TYPED_TEST(Rows, ActivationsAtTheEnds) {
  using T = TypeParam;
  this->each_tier([](const RowKernels<T>& k) {
    const std::vector<float> values = {0.0f, -0.0f, 1e-30f, -1e-30f, 20.0f, -20.0f, 100.0f, -100.0f, 1e20f, -1e20f, 3e38f, -3e38f};
    const auto n = int64_t(values.size());
    Row<T> x(n), one(n), y(n), dx(n), pair(2 * n);
    for (int64_t i = 0; i < n; i++) x[i] = T(values[size_t(i)]), one[i] = T(1.0f), pair[i] = x[i], pair[n + i] = T(1.0f);
    k.gelu_forward(y, x, n);
    k.gelu_backward(dx, one, x, n);
    for (int64_t i = 0; i < n; i++) {
      const double v = x.at(i), want = std::abs(v) > 10 ? (v > 0 ? v : 0.0) : gelu(v);
      ASSERT_NEAR(y.at(i), want, kRounding<T> * std::abs(want) + 2e-6 * std::min(1.0, std::abs(v))) << "gelu of " << v;
      ASSERT_NEAR(dx.at(i), std::abs(v) > 10 ? double(v > 0) : gelu_slope(v), 1e-5) << "slope of gelu at " << v;
    }
    k.swiglu_forward(y, pair, n);
    for (int64_t i = 0; i < n; i++) {
      const double v = x.at(i), want = v / (1 + std::exp(-v));
      ASSERT_NEAR(y.at(i), want, kRounding<T> * std::abs(want) + 1e-6 * std::min(1.0, std::abs(v))) << "silu of " << v;
    }
  });
}

TYPED_TEST(Rows, NanComesThrough) {
  using T = TypeParam;
  this->each_tier([](const RowKernels<T>& k) {
    for (int64_t n : {1, 5, 16, 40, 67})
      for (int64_t bad : {int64_t(0), n / 2, n - 1}) {
        Row<T> x(n, 1), y(n), ones(n, 2);
        x[bad] = T(std::numeric_limits<float>::quiet_NaN());
        k.gelu_forward(y, x, n);
        EXPECT_TRUE(std::isnan(y.at(bad)));
        k.gelu_backward(y, ones, x, n);
        EXPECT_TRUE(std::isnan(y.at(bad)));
        float max = 0, sum = 0, rstd = 0;
        k.softmax_stats(&max, &sum, x, n);
        EXPECT_TRUE(std::isnan(max + std::log(sum))) << "a NaN logit vanished, " << n << " columns, NaN at " << bad;
        k.norm_forward(y, &rstd, nullptr, x, nullptr, nullptr, nullptr, nullptr, n, 1e-5f);
        EXPECT_TRUE(std::isnan(rstd));
        EXPECT_TRUE(std::isnan(k.sum_squares(x, n)));
        k.softcap(x, n, 15.0f);
        EXPECT_TRUE(std::isnan(x.at(bad)));
      }
    Row<T> z(20, 1);
    float max = 0, sum = 0;
    z[7] = T(std::numeric_limits<float>::infinity());
    k.softmax_stats(&max, &sum, z, 20);
    EXPECT_FALSE(std::isfinite(max + std::log(sum)));
    for (int64_t i = 0; i < 20; i++) z[i] = T(-std::numeric_limits<float>::infinity());
    k.softmax_stats(&max, &sum, z, 20);
    EXPECT_FALSE(std::isfinite(max + std::log(sum)));
    for (int64_t i = 0; i < 20; i++) z[i] = T(i == 3 ? 1.0f : -std::numeric_limits<float>::infinity());
    k.softmax_stats(&max, &sum, z, 20);
    EXPECT_EQ(max, 1.0f);
    EXPECT_EQ(sum, 1.0f);                                        // an impossible column counts nothing
  });
}

TYPED_TEST(Rows, Softmax) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> z(n, 1, 4);
    if (n > 3) z[n - 2] = T(-200.0f);                            // underflows to 0
    float max = 0, sum = 0;
    k.softmax_stats(&max, &sum, z, n);
    double top = -INFINITY, total = 0;
    for (int64_t i = 0; i < n; i++) top = std::max(top, z.at(i));
    for (int64_t i = 0; i < n; i++) total += std::exp(z.at(i) - top);
    EXPECT_EQ(double(max), top);
    EXPECT_NEAR(sum, total, 1e-6 * total);
    EXPECT_TRUE(z.intact());
    for (int64_t target : {int64_t(-1), int64_t(0), n - 1, n}) {
      for (float cap : {0.0f, 30.0f}) {
        Row<T> d = z;
        k.softmax_gradient(d, n, max, sum, target, 0.5f, cap);
        expect_row(d, [&](int64_t i) {
          const double slope = cap > 0 ? 1 - z.at(i) * z.at(i) / (cap * cap) : 1;
          return (std::exp(z.at(i) - top) / total - (i == target)) * 0.5 * slope;
        }, 1, "dlogits");
      }
    }
  });
}

TYPED_TEST(Rows, Softcap) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> x(n, 1, 20);
    for (int64_t i = 0; i < n; i += 3) x[i] = T(float(x[i]) * 1e-4f);        // small arguments keep their relative precision
    for (int64_t i = 1; i < n; i += 7) x[i] = T(float(x[i]) * 1e4f);
    Row<T> y = x;
    k.softcap(y, n, 15.0f);
    EXPECT_TRUE(y.intact());
    for (int64_t i = 0; i < n; i++) {
      const double want = 15 * std::tanh(x.at(i) / 15);
      ASSERT_NEAR(y.at(i), want, (kRounding<T> + 6e-7) * std::abs(want)) << x.at(i);
    }
  });
}

TYPED_TEST(Rows, Dropout) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<T> x(n, 1), y(n);
    const isa::DropoutRow row{.key = 0xfedcba9876543210ull, .sequence = 5, .t = 77, .threshold = drop_threshold(0.3),
                              .keep = float(1 / 0.7)};
    if (n > 1) x[1] = T(0.0f);
    k.dropout(y, x, n, row);
    expect_row(y, [&](int64_t c) {
      const auto words = philox(row.key, row.sequence, row.t, uint32_t(c / 4), 0);
      return words[size_t(c % 4)] < row.threshold ? 0.0 : x.at(c) / 0.7;
    }, 0, "dropout");
    Row<T> in_place = x;
    k.dropout(in_place, in_place, n, row);
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(in_place.at(i), y.at(i));
  });
}

TYPED_TEST(Rows, AdamW) {
  using T = TypeParam;
  this->each([](const RowKernels<T>& k, int64_t n) {
    Row<float> p(n, 1), m(n, 2, 0.1), v(n, 3, 0.1), grad(n, 4);
    Row<T> value(n);
    for (int64_t i = 0; i < n; i++) v[i] = v[i] * v[i];
    if (n > 2) grad[2] = m[2] = v[2] = 0;                       // no gradient so far: only the decay acts
    const Row<float> p0 = p, m0 = m, v0 = v;
    const double lr = 1e-2, b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, gs = 0.5;
    const int t = 3;
    const isa::AdamWFactors f{.beta1 = float(b1), .beta2 = float(b2), .rest1 = float(1 - b1), .rest2 = float(1 - b2),
                              .decay = float(1 - lr * decay), .step = float(lr / (1 - std::pow(b1, t))),
                              .root = float(1 / std::sqrt(1 - std::pow(b2, t))), .eps = float(eps), .grad_scale = float(gs)};
    k.adamw(value, p, m, v, grad, n, f);
    const auto g = [&](int64_t i) { return grad.at(i) * gs; };
    const auto m1 = [&](int64_t i) { return b1 * m0.at(i) + (1 - b1) * g(i); };
    const auto v1 = [&](int64_t i) { return b2 * v0.at(i) + (1 - b2) * g(i) * g(i); };
    expect_row(m, m1, 0.1, "m");
    expect_row(v, v1, 0, "v");
    expect_row(p, [&](int64_t i) {
      return p0.at(i) * (1 - lr * decay) - lr * (m1(i) / (1 - std::pow(b1, t))) / (std::sqrt(v1(i) / (1 - std::pow(b2, t))) + eps);
    }, 1, "p");
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(value.at(i), double(float(T(p[i]))));
    EXPECT_TRUE(value.intact());
    Row<float> again = p0, m2 = m0, v2 = v0;
    k.adamw(nullptr, again, m2, v2, grad, n, f);
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(again.at(i), p.at(i));
  });
}

}  // namespace
}  // namespace wyvern
