// bench: GEMM shapes, attention, AdamW and a full step of a config, each against this machine's measured peak. Best and median of
// repeated runs; the peak is measured before and after, since shared machines change speed.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cpu/isa/peak.h"
#include "kernels/linear.h"
#include "trainer/plan.h"
#include "trainer/progress.h"
#include "trainer/verbs.h"

namespace wyvern {
namespace {

struct Line { std::string name; double best, median, work; const char* unit; };     // seconds; work in FLOP or bytes

Line measure(const std::string& name, double work, const char* unit, double seconds, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  const auto start = std::chrono::steady_clock::now();
  double elapsed = 0;
  while (times.size() < 3 || elapsed < seconds) {
    const double before = elapsed;
    run();
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    times.push_back(elapsed - before);
  }
  std::sort(times.begin(), times.end());
  return {name, times.front(), times[times.size() / 2], work, unit};
}

void fill(Tensor t, uint64_t seed) {
  with_float(t.dtype, [&]<class T>(T) {
    uint64_t x = seed;
    for (int64_t i = 0; i < t.numel(); i++) {
      x = x * 6364136223846793005ull + 1442695040888963407ull;
      as<T>(t)[i] = T(acc_t<T>(double(x >> 40) / double(1 << 24) - 0.5));
    }
  });
}

// Forward, dX and dW of every distinct weight shape.
void bench_gemm(const RunConfig& c, double seconds, std::vector<Line>& out) {
  Stream dry(true), s;
  const Mesh mesh = Mesh::single();
  Arena counting = Arena::counting();
  ParamStore params(counting, mesh, c.compute);
  Model model(c.model, params, dry);
  const int64_t N = c.train.micro_batch * c.train.sequence;
  std::vector<Shape> seen;
  for (const auto& p : params.all()) {
    const bool multiplies =
        p->role == Role::matrix || p->role == Role::head ||
        (p->role == Role::embedding && c.model.tied && p->padding + c.model.vocab_size == p->shape[0] && p->name == "embed.tokens.weight");
    if (!multiplies || std::find(seen.begin(), seen.end(), p->shape) != seen.end()) continue;
    seen.push_back(p->shape);
    const int64_t O = p->shape[0], I = p->shape[1], rows = p->role == Role::matrix ? N : std::min<int64_t>(N, 1280);
    const DType d = c.compute, acc = acc_of(d);
    Arena a((rows * (O + I) * 2 + O * I) * bytes_of(d) + O * I * bytes_of(acc) + 4096);
    const Tensor x = a.alloc(d, {rows, I}, "x"), w = a.alloc(d, {O, I}, "w"), y = a.alloc(d, {rows, O}, "y"),
                 dx = a.alloc(d, {rows, I}, "dx"), dw = a.alloc(acc, {O, I}, "dw");
    for (const Tensor& t : {x, w, y}) fill(t, 7);
    const double work = 2.0 * double(rows) * double(O) * double(I);
    const std::string shape = fmt::format("{} x {} x {}", rows, O, I);
    out.push_back(measure("gemm forward " + shape, work, "FLOP", seconds, [&] { linear_forward(s, {.y = y, .x = x, .w = w}); }));
    for (const Tensor& t : {y}) fill(t, 9);
    out.push_back(measure("gemm dx + dw " + shape, 2 * work, "FLOP", seconds,
                          [&] { linear_backward(s, {.dx = dx, .dw = dw, .dy = y, .x = x, .w = w}); }));
  }
}

void bench_attention(const RunConfig& c, double seconds, std::vector<Line>& out) {
  const LayerConfig& l = c.model.layers.front();
  const IntRange any{1, int64_t(1) << 40};
  const int64_t H = l.attention.integer("heads", {}, any, ""), Hkv = l.attention.integer("kv_heads", H, any, "");
  const int64_t D = l.attention.integer("head_dim", std::max<int64_t>(1, c.model.channels / H), any, ""), B = c.train.micro_batch,
                T = c.train.sequence, N = B * T, W = (H + 2 * Hkv) * D;
  const DType d = c.compute;
  Stream s;
  Arena a(N * (2 * W + 2 * H * D) * bytes_of(d) + N * H * 8 + (B + 1) * 4 + 4096);
  const Tensor qkv = a.alloc(d, {N, W}, "qkv"), dqkv = a.alloc(d, {N, W}, "dqkv"), o = a.alloc(d, {N, H * D}, "out"),
               dout = a.alloc(d, {N, H * D}, "dout");
  const Tensor lse = a.alloc(acc_of(d), {N, H}, "lse"), docs = a.alloc(DType::i32, {B + 1}, "docs");
  for (int64_t b = 0; b <= B; b++) as<int32_t>(docs)[b] = int32_t(b * T);
  fill(qkv, 3);
  fill(dout, 5);
  const AttentionShape shape{.H = H, .Hkv = Hkv, .D = D, .T = T, .scale = 1 / std::sqrt(double(D))};
  const Columns q{qkv, 0}, k{qkv, H * D}, v{qkv, (H + Hkv) * D};
  const double work = 2.0 * double(B * H * D) * double(T) * double(T + 1);      // the causal half of two products
  const std::string name = fmt::format("B {} T {} H {}/{} D {}", B, T, H, Hkv, D);
  out.push_back(measure("attention forward " + name, work, "FLOP", seconds,
                        [&] { attention_forward(s, {.out = o, .lse = lse, .q = q, .k = k, .v = v, .doc_starts = docs, .shape = shape}); }));
  out.push_back(measure("attention backward " + name, 2.5 * work, "FLOP", seconds, [&] {
    attention_backward(s, {.dq = {dqkv, 0},
                           .dk = {dqkv, H * D},
                           .dv = {dqkv, (H + Hkv) * D},
                           .dout = dout,
                           .out = o,
                           .lse = lse,
                           .q = q,
                           .k = k,
                           .v = v,
                           .doc_starts = docs,
                           .shape = shape});
  }));
}

void bench_adamw(const RunConfig& c, const Plan& plan, double seconds, std::vector<Line>& out) {
  const int64_t n = std::min<int64_t>(plan.padded, 64 << 20);
  const DType d = c.compute, acc = acc_of(d);
  Stream s;
  Arena a(n * (4 * bytes_of(acc) + bytes_of(d)) + 4096);
  const Tensor p = a.alloc(acc, {n}, "p"), m = a.alloc(acc, {n}, "m"), v = a.alloc(acc, {n}, "v"), g = a.alloc(acc, {n}, "g"),
               value = d == acc ? p : a.alloc(d, {n}, "value");
  fill(p, 1);
  fill(g, 2);
  const double bytes = double(n) * (7.0 * double(bytes_of(acc)) + (d == acc ? 0.0 : double(bytes_of(d))));
  int64_t t = 0;
  out.push_back(measure(fmt::format("adamw {} parameters", n), bytes, "B", seconds, [&] {
    adamw(s, {.value = value,
              .p = p,
              .m = m,
              .v = v,
              .grad = g,
              .lr = 1e-4,
              .beta1 = 0.9,
              .beta2 = 0.95,
              .eps = 1e-8,
              .weight_decay = 0.1,
              .grad_scale = 1,
              .t = ++t});
  }));
}

void bench_step(const RunConfig& c, const Plan& plan, double seconds, std::vector<Line>& out) {
  Instance m(c.model, c.compute, &c.optim, {{c.train.micro_batch, c.train.sequence, Mode::train}});
  m.params.initialise(m.stream, 1);
  m.optimizer->reset_masters(m.stream);
  auto source = make_synthetic("uniform", c.train.sequence, 1, c.model.vocab_size);
  const int64_t tokens = c.train.micro_batch * c.train.sequence;
  int64_t step = 0;
  out.push_back(measure(fmt::format("step of {} x {} tokens", c.train.micro_batch, c.train.sequence),
                        double(plan.flops.total()) * double(tokens), "FLOP", seconds, [&] {
                          TokenBatch t = source->next(c.train.micro_batch);
                          HostBatch host(c.train.micro_batch, c.train.sequence, std::move(t.tokens), std::move(t.targets));
                          host.batch().loss_scale = 1.0 / double(tokens);
                          m.params.zero_grad(m.stream);
                          m.reset();
                          Context ctx = m.context(host.batch(), Mode::train);
                          m.model.forward(ctx);
                          m.model.backward(ctx);
                          const double norm = m.params.grad_norm(m.stream);
                          m.optimizer->step(m.stream, {.step = step++, .grad_scale = std::min(1.0, 1 / (norm + 1e-6))});
                        }));
}

}  // namespace

int verb_bench(const BenchArgs& a) {
  const ConfigTree tree = ConfigTree::load(a.config, a.overrides);
  const RunConfig c = RunConfig::from(tree.root());
  const Plan plan = make_plan(c);
  tree.check();
  if (c.train.threads > 0) omp_set_num_threads(c.train.threads);
  const bool bf16 = c.compute == DType::bf16, all = a.what == "all";
  std::vector<Line> lines;
  const double before = isa::measure_peak_flops(bf16);
  if (all || a.what == "gemm") bench_gemm(c, a.seconds, lines);
  if (all || a.what == "attention") bench_attention(c, a.seconds, lines);
  if (all || a.what == "adamw") bench_adamw(c, plan, a.seconds, lines);
  if (all || a.what == "step") bench_step(c, plan, a.seconds, lines);
  const double peak = std::max(before, isa::measure_peak_flops(bf16));
  nlohmann::ordered_json j{{"peak_flops", peak}, {"threads", omp_get_max_threads()}, {"results", nlohmann::ordered_json::array()}};
  if (!a.json)
    fmt::print("peak {} ({} threads, {})\n{:<44} {:>10} {:>10} {:>16} {:>8}\n", human_flops(peak), omp_get_max_threads(),
               name_of(c.compute), "", "best ms", "median ms", "best rate", "of peak");
  for (const Line& l : lines) {
    const bool flop = l.unit[0] == 'F';
    const double rate = l.work / l.best;
    j["results"].push_back(
        {{"name", l.name}, {"best_ms", l.best * 1e3}, {"median_ms", l.median * 1e3}, {flop ? "flops_per_s" : "bytes_per_s", rate}});
    if (!a.json)
      fmt::print("{:<44} {:>10.2f} {:>10.2f} {:>16} {:>8}\n", l.name, l.best * 1e3, l.median * 1e3,
                 flop ? human_flops(rate) : fmt::format("{:.1f} GB/s", rate / 1e9), flop ? fmt::format("{:.1f} %", 100 * rate / peak) : "");
    if (!a.json && l.name.rfind("step", 0) == 0)
      fmt::print("{:<44} {:>10.0f} {:>10.0f}\n", "  tokens per second", double(c.train.micro_batch * c.train.sequence) / l.best,
                 double(c.train.micro_batch * c.train.sequence) / l.median);
  }
  if (a.json) fmt::print("{}\n", j.dump());
  return kDone;
}

}  // namespace wyvern
