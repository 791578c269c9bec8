#include "trainer/gradcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "trainer/instance.h"
#include "trainer/run_config.h"

namespace wyvern {
namespace {

constexpr int64_t kChannels = 24, kVocab = 61, kPadded = 64, kTokens = 13, kHeadDim = 8, kHidden = 20, kWindow = 5, kSequences = 2;
constexpr double kStep = 2e-5;       // at 2e-4 the four-point formula's own error exceeds the bound
constexpr double kRelative = 1e-6, kFloor = 1e-9;

void reduce_layer(const LayerConfig& l, std::vector<std::string>& out) {
  const Node &a = l.attention, &f = l.ffn;
  const auto set = [&](const Node& n, const char* key, int64_t v) { out.push_back(fmt::format("{}.{}={}", n.path(), key, v)); };
  const IntRange any{1, int64_t(1) << 40};
  const int64_t H = a.integer("heads", 1, any, ""), Hkv = a.integer("kv_heads", H, any, "");
  const int64_t ratio = std::max<int64_t>(1, H / std::max<int64_t>(1, Hkv)), groups = Hkv == 1 || ratio > 2 ? 1 : 2;
  set(a, "heads", ratio * groups);
  set(a, "kv_heads", groups);
  set(a, "head_dim", kHeadDim);
  if (const auto w = a.integer_or_none("window", {}, any, "")) set(a, "window", std::min(*w, kWindow));
  set(f, "hidden", kHidden);
}

// A problem small enough to differentiate: two sequences, a document boundary inside the first, some targets ignored.
struct Problem {
  Instance model;
  HostBatch host;
  RngKey rng{7, 3, -1};

  explicit Problem(const ModelConfig& c)
      : model(c, DType::f64, nullptr, {{kSequences, c.context, Mode::train}}), host(batch(c)) {
    host.batch().loss_scale = 1.0 / double(host.valid_targets());
  }
  static HostBatch batch(const ModelConfig& c) {
    std::mt19937_64 random(11);
    std::vector<int32_t> tokens, targets;
    for (int64_t i = 0; i < kSequences * c.context; i++) {
      tokens.push_back(int32_t(random() % uint64_t(c.vocab_size)));
      targets.push_back(random() % 7 == 0 ? -1 : int32_t(random() % uint64_t(c.vocab_size)));
    }
    return HostBatch(kSequences, c.context, tokens, targets, {5});
  }
  double loss() {
    model.reset();
    Context c = model.context(host.batch(), Mode::train, rng);
    return model.model.forward(c);
  }
  void backward() {
    model.params.zero_grad(model.stream);
    model.reset();
    Context c = model.context(host.batch(), Mode::train, rng);
    model.model.forward(c);
    model.model.backward(c);
  }
  // Values of real size everywhere: at the usual initialisation zero biases and unit norms would hide mistakes.
  void randomise(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (const auto& p : model.params.all()) {
      const double base = p->init.kind == Init::ones ? 1 : 0, spread = p->role == Role::vector      ? 0.2
                                                                       : p->role == Role::embedding ? 0.5
                                                                                                    : 0.3;
      double* v = as<double>(p->value);
      const int64_t trained = p->count();
      for (int64_t i = 0; i < p->value.numel(); i++) v[i] = i < trained ? base + spread * normal(random) : 0;
    }
  }
};

// d loss / d e at e = 0 when `move(e)` displaces the parameters.
template <class Move> double four_point(Problem& p, Move&& move) {
  double f[4];
  const double at[4] = {kStep, -kStep, 2 * kStep, -2 * kStep};
  for (int i = 0; i < 4; i++) {
    move(at[i]);
    f[i] = p.loss();
  }
  move(0);
  return (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * kStep);
}

std::vector<int64_t> sample(int64_t n, int count, std::mt19937_64& random) {
  std::set<int64_t> at{0, n - 1};
  while (int64_t(at.size()) < std::min<int64_t>(n, count)) at.insert(int64_t(random() % uint64_t(n)));
  return {at.begin(), at.end()};
}

struct Comparison { double difference = 0, allowed = 0; };
void keep_worse(GradcheckTensor& t, const Comparison& c) {
  const double error = std::isfinite(c.difference) ? c.difference / c.allowed : 1e300;
  if (error < t.error) return;
  t.error = error;
  t.difference = c.difference;
  t.allowed = c.allowed;
}

GradcheckTensor check_tensor(Problem& p, const Param& param, const std::vector<double>& gradient, double norm_all,
                             const GradcheckOptions& o) {
  std::mt19937_64 random(o.seed ^ std::hash<std::string>{}(param.name));
  double* value = as<double>(param.value);
  const int64_t n = param.count();
  GradcheckTensor t{.name = param.name, .shape = param.shape};
  for (double g : gradient) t.norm += g * g;
  t.norm = std::sqrt(t.norm);

  const auto entries = sample(n, o.entries, random);
  t.entries = int64_t(entries.size());
  double squares = 0, numeric_squares = 0;
  for (int64_t i : entries) {
    const double keep = value[i];
    const double numeric = four_point(p, [&](double e) { value[i] = keep + e; });
    squares += (numeric - gradient[size_t(i)]) * (numeric - gradient[size_t(i)]);
    numeric_squares += numeric * numeric;
  }
  const double share = std::sqrt(double(entries.size()) / double(n));     // of the tensor's norm that the sample can expect
  keep_worse(t, {std::sqrt(squares), kRelative * t.norm * share + kFloor * norm_all});

  std::normal_distribution<double> normal;
  for (int direction = 0; direction < 2; direction++) {
    std::vector<double> u(static_cast<size_t>(n)), keep(value, value + n);
    double length = 0, manual = 0;
    for (double& x : u) { x = normal(random); length += x * x; }
    for (double& x : u) x /= std::sqrt(length);
    for (int64_t i = 0; i < n; i++) manual += gradient[size_t(i)] * u[size_t(i)];
    const double numeric = four_point(p, [&](double e) { for (int64_t i = 0; i < n; i++) value[i] = keep[size_t(i)] + e * u[size_t(i)]; });
    keep_worse(t, {std::abs(numeric - manual), kRelative * t.norm + kFloor * norm_all});
  }
  const bool zero = t.norm <= kFloor * norm_all && std::sqrt(numeric_squares) <= kFloor * norm_all;
  t.verdict = t.error > 1 ? "FAIL" : zero ? "zero" : "ok";
  return t;
}

}  // namespace

std::vector<std::string> gradcheck_overrides(const ConfigTree& tree) {
  const ModelConfig model = ModelConfig::from(tree.root().map("model", ""));
  std::vector<std::string> out = {fmt::format("model.channels={}", kChannels), fmt::format("model.vocab_size={}", kVocab),
                                  fmt::format("model.padded_vocab={}", kPadded), fmt::format("model.context={}", kTokens)};
  std::set<std::string> seen;
  for (const LayerConfig& l : model.layers)
    if (seen.insert(l.attention.path()).second) reduce_layer(l, out);
  return out;
}

GradcheckResult gradcheck(const ConfigTree& reduced, const GradcheckOptions& o) {
  ModelConfig c = ModelConfig::from(reduced.root().map("model", ""));
  std::set<std::string> seen;
  std::erase_if(c.layers, [&](const LayerConfig& l) { return !seen.insert(l.attention.path()).second; });      // each distinct layer once
  Problem problem(c);
  problem.randomise(o.seed);
  problem.backward();
  if (o.tamper) o.tamper(problem.model.params);

  // Copied before anything moves: a training forward already accumulates the head's weight gradient.
  std::vector<std::vector<double>> gradients;
  double norm_all = 0;
  for (const auto& p : problem.model.params.all()) {
    const double* g = as<double>(p->grad);
    gradients.emplace_back(g, g + p->count());
    for (double x : gradients.back()) norm_all += x * x;
  }
  norm_all = std::sqrt(norm_all);

  GradcheckResult result;
  const auto& all = problem.model.params.all();
  for (size_t i = 0; i < all.size(); i++) {
    result.tensors.push_back(check_tensor(problem, *all[i], gradients[i], norm_all, o));
    const GradcheckTensor& t = result.tensors.back();
    if (t.verdict == "FAIL") result.passed = false;
    if (t.error >= result.worst) { result.worst = t.error; result.worst_name = t.name; }
    if (o.progress) o.progress(t, i + 1, all.size());
  }
  return result;
}

std::string to_table(const GradcheckResult& r) {
  size_t width = 6;
  for (const auto& t : r.tensors) width = std::max(width, t.name.size());
  std::string out = fmt::format("{:<{}}  {:>12}  {:>10}  {:>10}  {:>10}  {}\n", "tensor", width, "shape", "|gradient|", "difference",
                                "allowed", "verdict");
  for (const auto& t : r.tensors)
    out += fmt::format("{:<{}}  {:>12}  {:>10.3e}  {:>10.2e}  {:>10.2e}  {}\n", t.name, width, fmt::format("{}", fmt::join(t.shape, "x")),
                       t.norm, t.difference, t.allowed, t.verdict == "zero" ? "ok (zero by symmetry)" : t.verdict);
  int64_t failed = std::count_if(r.tensors.begin(), r.tensors.end(), [](const auto& t) { return t.verdict == "FAIL"; });
  out += r.passed ? fmt::format("passed: {} tensors; worst is {} at {:.2f} of what is allowed\n", r.tensors.size(), r.worst_name, r.worst)
                  : fmt::format("FAILED: {} of {} tensors; worst is {} at {:.3g} times what is allowed\n", failed, r.tensors.size(),
                                r.worst_name, r.worst);
  return out;
}

std::string to_json(const GradcheckResult& r) {
  nlohmann::ordered_json j{{"passed", r.passed}, {"worst", r.worst}, {"tensors", nlohmann::ordered_json::array()}};
  for (const auto& t : r.tensors)
    j["tensors"].push_back({{"name", t.name}, {"error", t.difference}, {"allowed", t.allowed}, {"verdict", t.verdict}});
  return j.dump();
}

}  // namespace wyvern
