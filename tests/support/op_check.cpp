#include "tests/support/op_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/isa/tier.h"

namespace wyvern {

namespace {

class Threads {                                   // that many OpenMP threads while it lives
 public:
  explicit Threads(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;

 private:
  int before_;
};

class ForcedTier {                                // that instruction tier while it lives
 public:
  explicit ForcedTier(isa::Tier t) : before_(isa::tier()) { isa::force_tier(t); }
  ~ForcedTier() { isa::force_tier(before_); }
  ForcedTier(const ForcedTier&) = delete;

 private:
  isa::Tier before_;
};

}  // namespace

// ---- OwnedTensor -------------------------------------------------------------------------------------------------------
OwnedTensor::OwnedTensor(DType dtype, const Shape& dims) : view_(wyvern::view(nullptr, dtype, dims)) {
  storage_.assign(size_t(view_.bytes()), std::byte{0xff});
  view_.data = storage_.data();
}

OwnedTensor OwnedTensor::normal(DType dtype, const Shape& dims, unsigned seed, double spread) {
  OwnedTensor t(dtype, dims);
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < t.view_.numel(); i++) t.set(i, double(float(bf16(float(spread * normal(rng))))));
  return t;
}

OwnedTensor OwnedTensor::filled(DType dtype, const Shape& dims, double value) {
  OwnedTensor t(dtype, dims);
  t.fill(value);
  return t;
}

OwnedTensor OwnedTensor::ints(const std::vector<int32_t>& values) {
  OwnedTensor t(DType::i32, {int64_t(values.size())});
  std::copy(values.begin(), values.end(), as<int32_t>(t.view_));
  return t;
}

double OwnedTensor::get(int64_t i) const {
  if (view_.dtype == DType::i32) return as<int32_t>(view_)[i];
  return with_float(view_.dtype, [&]<class T>(T) { return double(acc_t<T>(as<T>(view_)[i])); });
}
void OwnedTensor::set(int64_t i, double value) {
  with_float(view_.dtype, [&]<class T>(T) { as<T>(view_)[i] = T(acc_t<T>(value)); });
}
std::vector<double> OwnedTensor::values() const {
  std::vector<double> v(size_t(view_.numel()));
  for (size_t i = 0; i < v.size(); i++) v[i] = get(int64_t(i));
  return v;
}
void OwnedTensor::fill(double value) {
  for (int64_t i = 0; i < view_.numel(); i++) set(i, value);
}
void OwnedTensor::copy_from(const OwnedTensor& from) {
  CHECK(storage_.size() == from.storage_.size() && view_.dtype == from.view_.dtype, "{} from {}", to_string(view_), to_string(from.view_));
  std::copy(from.storage_.begin(), from.storage_.end(), storage_.begin());
}

// ---- comparison ----------------------------------------------------------------------------------------------------------
Named record(const std::string& name, const OwnedTensor& t) { return {name, shape_of(t), t.values()}; }

namespace {

std::string coordinate(size_t index, const Shape& shape) {
  Shape at(shape.size());
  for (size_t d = shape.size(); d-- > 0; index /= size_t(shape[d])) at[d] = int64_t(index % size_t(shape[d]));
  return to_string(at);
}
double norm(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += x * x;
  return std::sqrt(s);
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double s = 0;
  for (size_t i = 0; i < a.size(); i++) s += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(s);
}
// The first entry that is wrong by more than its fair share of the allowed error.
std::string first_bad(const Named& got, const Named& want, double allowed) {
  const double share = allowed / std::sqrt(double(want.values.size()));
  for (size_t i = 0; i < want.values.size(); i++)
    if (!(std::abs(got.values[i] - want.values[i]) <= share))
      return fmt::format("first bad at {}: got {:.9g}, want {:.9g}", coordinate(i, want.shape), got.values[i], want.values[i]);
  return "no single entry stands out";
}

}  // namespace

void expect_close(const Named& got, const Named& want, double tolerance) {
  ASSERT_EQ(got.name, want.name);
  ASSERT_EQ(got.values.size(), want.values.size()) << got.name;
  const double error = distance(got.values, want.values), size = norm(want.values);
  EXPECT_TRUE(error <= tolerance * size) << fmt::format("{} {}: relative L2 error {:.3g}, allowed {:.3g}; {}", got.name,
                                                        to_string(want.shape), error / size, tolerance,
                                                        first_bad(got, want, tolerance * size));
}
void expect_close(const Results& got, const Results& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++) expect_close(got[i], want[i], tolerance);
}

// ---- gradients -----------------------------------------------------------------------------------------------------------
namespace {

constexpr double kStep = 2e-5;
constexpr int64_t kAll = 600, kSample = 150;      // entries of a tensor that are all tried; entries tried of a larger one

bool addressed(const Variable& v, int64_t i) {
  if (v.columns.empty()) return true;
  const int64_t column = i % v.x.view().dim[1];
  return std::any_of(v.columns.begin(), v.columns.end(), [&](const Range& r) { return column >= r.begin && column < r.end; });
}

std::vector<int64_t> entries(const Variable& v) {
  const int64_t n = v.x.view().numel();
  std::vector<int64_t> chosen;
  if (n <= kAll) {
    for (int64_t i = 0; i < n; i++) chosen.push_back(i);
    return chosen;
  }
  std::mt19937_64 rng{uint64_t(n)};
  chosen = {0, n - 1};
  while (int64_t(chosen.size()) < kSample) chosen.push_back(int64_t(rng() % uint64_t(n)));
  return chosen;
}

std::vector<double> outputs_of(const DifferentiableOp& op) {
  op.forward();
  std::vector<double> y;
  for (const Output& o : op.outputs)
    for (double v : o.y.values()) y.push_back(v);
  return y;
}

// d <cotangent, outputs> / d x[i] = (8 (f1 - f-1) - (f2 - f-2)) / 12 h. Outputs are subtracted one by one, so those that do
// not depend on x[i] give exactly nothing.
double derivative(const DifferentiableOp& op, const std::vector<double>& cotangent, OwnedTensor& x, int64_t i) {
  const double at = x.get(i);
  const auto shifted = [&](double steps) {
    x.set(i, at + steps * kStep);
    return outputs_of(op);
  };
  const auto p1 = shifted(1), m1 = shifted(-1), p2 = shifted(2), m2 = shifted(-2);
  x.set(i, at);
  long double total = 0;
  for (size_t k = 0; k < cotangent.size(); k++) total += cotangent[k] * (8 * (p1[k] - m1[k]) - (p2[k] - m2[k]));
  return double(total) / (12 * kStep);
}

// Runs forward and backward over gradient buffers that hold `garbage` where they are written, `base` where they accumulate.
std::vector<std::vector<double>> gradients_over(const DifferentiableOp& op, double garbage, double base) {
  for (const Variable& v : op.variables) {
    CHECK(v.x.view().dtype == DType::f64 && v.dx.view().dtype == DType::f64, "{}: gradients are checked in f64", v.name);
    v.dx.fill(v.gives == Gives::written ? garbage : base);
  }
  op.forward();
  op.backward();
  std::vector<std::vector<double>> g;
  for (const Variable& v : op.variables) g.push_back(v.dx.values());
  return g;
}

}  // namespace

void expect_gradients(const DifferentiableOp& op) {
  const Threads one(1);                           // thousands of tiny passes: waking threads would cost more than the work
  const auto analytic = gradients_over(op, NAN, 0);
  std::vector<double> cotangent;
  for (const Output& o : op.outputs)
    for (double d : o.dy.values()) cotangent.push_back(d);

  std::vector<Named> got, want;
  double all = 0;
  for (size_t k = 0; k < op.variables.size(); k++) {
    const Variable& v = op.variables[k];
    Named g{"d" + v.name, {}, {}}, w = g;
    for (int64_t i : entries(v)) {
      const double numeric = derivative(op, cotangent, v.x, i), written = analytic[k][size_t(i)];
      if (!addressed(v, i)) {
        EXPECT_EQ(numeric, 0) << v.name << ": forward reads beyond the addressed columns at entry " << i;
        EXPECT_TRUE(v.gives == Gives::accumulated ? written == 0 : std::isnan(written))
            << v.name << ": backward wrote a foreign column at entry " << i;
        continue;
      }
      w.values.push_back(numeric);
      g.values.push_back(written);
      all += numeric * numeric;
    }
    got.push_back(g);
    want.push_back(w);
  }
  for (size_t k = 0; k < got.size(); k++) {
    const double error = distance(got[k].values, want[k].values), allowed = 1e-6 * norm(want[k].values) + 1e-9 * std::sqrt(all);
    got[k].shape = want[k].shape = {int64_t(got[k].values.size())};
    EXPECT_TRUE(error <= allowed) << fmt::format("{}: error {:.3g}, allowed {:.3g}, ||g|| {:.3g}; {} (counting the tried entries)",
                                                 got[k].name, error, allowed, norm(want[k].values), first_bad(got[k], want[k], allowed));
  }
  EXPECT_GT(all, 0) << "every derivative is zero: nothing was checked";
}

void expect_accumulates(const DifferentiableOp& op) {
  constexpr double kBase = 3;
  constexpr double kRounding = 1e-13;      // sums of some hundred terms around kBase, relative to the largest
  const auto clean = gradients_over(op, NAN, 0), dirty = gradients_over(op, 1e30, kBase);
  for (size_t k = 0; k < op.variables.size(); k++) {
    const Variable& v = op.variables[k];
    double largest = kBase;
    for (double g : clean[k]) largest = std::isnan(g) ? largest : std::max(largest, std::abs(g));
    for (int64_t i = 0; i < v.x.view().numel(); i++) {
      if (!addressed(v, i)) continue;
      const double once = clean[k][size_t(i)], again = dirty[k][size_t(i)];
      if (v.gives == Gives::written) ASSERT_EQ(once, again) << "d" << v.name << " depends on what was in it, entry " << i;
      else ASSERT_NEAR(again, kBase + once, kRounding * largest) << "d" << v.name << " does not add, entry " << i;
    }
  }
}

// ---- precision, threads, doors ---------------------------------------------------------------------------------------------
void expect_twins(const std::function<Results(DType)>& run, double f32_tolerance, double bf16_tolerance) {
  const Results exact = run(DType::f64);
  for (isa::Tier tier : {isa::Tier::plain, isa::tier()}) {
    const ForcedTier forced(tier);
    SCOPED_TRACE(isa::name_of(tier));
    for (DType d : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name_of(d));
      expect_close(run(d), exact, d == DType::f32 ? f32_tolerance : bf16_tolerance);
    }
  }
}

void expect_thread_independent(const std::function<Results(DType)>& run) {
  const auto with = [&](int threads, DType d) {
    const Threads these(threads);
    return run(d);
  };
  for (DType d : {DType::f64, DType::f32, DType::bf16}) {
    const Results one = with(1, d);
    for (int threads : {2, 3}) {
      const Results many = with(threads, d);
      for (size_t k = 0; k < one.size(); k++) {
        const std::vector<double> &a = one[k].values, &b = many[k].values;
        EXPECT_TRUE(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0)
            << fmt::format("{} {}: {} threads differ from one; {}", name_of(d), one[k].name, threads, first_bad(many[k], one[k], 0));
      }
    }
  }
}

void expect_refused(std::initializer_list<std::string> words, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected an error with: " << *words.begin();
  } catch (const Error& e) {
    for (const std::string& word : words) EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what() << "\nlacks: " << word;
  }
}

}  // namespace wyvern
