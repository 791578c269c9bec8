#include "trainer/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/progress.h"

namespace wyvern {
namespace {

// "layers.3.attn.qkv.weight" -> "layers.attn.qkv"; layers are summed.
std::string module_of(const std::string& name) {
  std::string out = name.substr(0, name.rfind('.'));
  if (out.rfind("layers.", 0) == 0) out = "layers" + out.substr(out.find('.', 7));
  return out;
}

struct DryModel {            // parameters without memory
  Stream stream{true};
  Mesh mesh = Mesh::single();
  Arena arena = Arena::counting();
  ParamStore params;
  Model model;
  DryModel(const ModelConfig& c, DType d) : params(arena, mesh, d), model(c, params, stream) {}
};

double timed_step(Instance& m, const RunConfig& c) {
  const int64_t n = c.train.micro_batch * c.train.sequence;
  auto source = make_synthetic("uniform", c.train.sequence, 1, c.model.vocab_size);
  double best = 1e300;
  for (int i = 0; i < 3; i++) {
    TokenBatch t = source->next(c.train.micro_batch);
    HostBatch host(c.train.micro_batch, c.train.sequence, std::move(t.tokens), std::move(t.targets));
    host.batch().loss_scale = 1.0 / double(n);
    const auto start = std::chrono::steady_clock::now();
    m.reset();
    Context ctx = m.context(host.batch(), Mode::train);
    m.model.forward(ctx);
    m.model.backward(ctx);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

Flops flops_per_token(const Model& model, const ParamStore& params, int64_t T) {
  Flops f;
  for (const auto& p : params.all())
    if (p->role == Role::matrix || p->role == Role::head || p->role == Role::expert) f.weights += p->count();
  if (model.config().tied) f.weights += model.config().vocab_size * model.config().channels;
  f.mixing = model.mixing_flops(T);
  return f;
}

std::vector<PassSize> training_passes(const RunConfig& c) {
  std::vector<PassSize> passes = {{c.train.micro_batch, c.train.sequence, Mode::train}};
  if (c.train.validate_every) passes.push_back({c.train.micro_batch, c.train.sequence, Mode::eval});
  if (c.train.sample_every) {
    passes.push_back({1, 1, Mode::decode});
    passes.push_back({1, std::min<int64_t>(c.model.context, 64), Mode::decode});
  }
  return passes;
}

Plan make_plan(const RunConfig& c) {
  Plan p;
  DryModel dry(c.model, c.compute);
  std::map<std::string, size_t> index;
  for (const auto& q : dry.params.all()) {
    int64_t all = 1;
    for (int64_t d : q->shape) all *= d;
    p.total += q->count();
    p.padded += all;
    const std::string m = module_of(q->name);
    if (!index.contains(m)) { index[m] = p.by_module.size(); p.by_module.push_back({m, 0}); }
    p.by_module[index[m]].second += q->count();
  }
  p.active = p.total;
  p.memory = plan_memory(c.model, c.compute, &c.optim, training_passes(c));
  p.available_bytes = available_memory();
  p.flops = flops_per_token(dry.model, dry.params, c.train.sequence);
  p.flops_llmc = 6 * p.padded + 6 * int64_t(c.model.layers.size()) * c.model.channels * c.train.sequence;
  p.steps = c.train.steps;
  p.tokens = c.train.steps * c.train.batch * c.train.sequence;
  return p;
}

// A step is linear in the number of layers: time the distinct layers once and twice, and go on from there.
double estimate_seconds(const RunConfig& full, const Plan& plan) {
  RunConfig c = full;
  std::set<std::string> seen;
  std::erase_if(c.model.layers, [&](const LayerConfig& l) { return !seen.insert(l.attention.path()).second; });
  const double distinct = double(c.model.layers.size());
  const std::vector<PassSize> passes = {{c.train.micro_batch, c.train.sequence, Mode::train}};
  double once = 0, update = 0;
  {
    Instance m(c.model, c.compute, &c.optim, passes);
    m.params.initialise(m.stream, 1);
    m.optimizer->reset_masters(m.stream);
    once = timed_step(m, c);
    m.optimizer->step(m.stream, {});
    const auto start = std::chrono::steady_clock::now();
    m.params.zero_grad(m.stream);
    m.optimizer->step(m.stream, {});
    update =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / double(m.params.count()) * double(plan.total);
  }
  const auto layers = c.model.layers;
  c.model.layers.insert(c.model.layers.end(), layers.begin(), layers.end());
  Instance m(c.model, c.compute, nullptr, passes);
  m.params.initialise(m.stream, 1);
  const double layer = std::max(0.0, timed_step(m, c) - once) / distinct;
  const double micro = once + layer * (double(full.model.layers.size()) - distinct);
  return double(full.train.steps) * (micro * double(full.train.batch / full.train.micro_batch) + update);
}

std::string to_table(const Plan& p, const RunConfig& c) {
  std::string out = fmt::format("{}: {} layers, {} channels, vocabulary {} (padded to {}), context {}\n\nparameters\n", c.name,
                                c.model.layers.size(), c.model.channels, c.model.vocab_size, c.model.padded_vocab, c.model.context);
  for (const auto& [name, n] : p.by_module) out += fmt::format("  {:<28} {:>16}\n", name, with_commas(n));
  out += fmt::format("  {:<28} {:>16}   ({} active, {} with padding rows)\n\nmemory\n", "total", with_commas(p.total),
                     with_commas(p.active), with_commas(p.padded));
  const std::pair<const char*, int64_t> kinds[] = {{"parameters", p.memory.parameters},
                                                   {"gradients", p.memory.gradients},
                                                   {"optimizer", p.memory.optimizer},
                                                   {"saved activations", p.memory.saved},
                                                   {"scratch", p.memory.scratch + p.memory.workspace}};
  for (const auto& [name, bytes] : kinds) out += fmt::format("  {:<28} {:>16}\n", name, human_bytes(double(bytes)));
  out += fmt::format("  {:<28} {:>16}   ({} available on this machine)\n\ncompute\n", "peak", human_bytes(double(p.memory.total())),
                     human_bytes(double(p.available_bytes)));
  out += fmt::format("  FLOPs per token = 6 x {} multiplying weights + 3 x {} for mixing tokens = {:.1f} MFLOP\n",
                     with_commas(p.flops.weights), with_commas(p.flops.mixing), double(p.flops.total()) / 1e6);
  out += fmt::format("  (llm.c's formula, 6 x all parameters + 6 L C T: {:.1f} MFLOP)\n", double(p.flops_llmc) / 1e6);
  out += fmt::format("  {} steps x {} sequences x {} tokens = {} tokens\n", with_commas(p.steps), c.train.batch, c.train.sequence,
                     with_commas(p.tokens));
  if (p.seconds_estimate)
    out += fmt::format("  about {} on this machine ({:.0f} tokens/s, measured for a moment)\n", human_seconds(*p.seconds_estimate),
                       double(p.tokens) / *p.seconds_estimate);
  return out;
}

std::string to_json(const Plan& p) {
  nlohmann::ordered_json j, modules;
  for (const auto& [name, n] : p.by_module) modules[name] = n;
  j["parameters"] = {{"total", p.total}, {"active", p.active}, {"padded", p.padded}, {"by_module", modules}};
  j["memory"] = {{"parameters", p.memory.parameters}, {"gradients", p.memory.gradients}, {"optimizer", p.memory.optimizer},
                 {"saved", p.memory.saved}, {"scratch", p.memory.scratch + p.memory.workspace}, {"peak_bytes", p.memory.total()}};
  j["flops_per_token"] = p.flops.total();
  j["tokens"] = p.tokens;
  j["steps"] = p.steps;
  j["seconds_estimate"] = p.seconds_estimate ? nlohmann::ordered_json(*p.seconds_estimate) : nlohmann::ordered_json(nullptr);
  return j.dump();
}

}  // namespace wyvern
