// Grouped-query softmax attention: x -> q|k|v -> (norm of each q and k head) -> (rope) -> attention -> o.
// heads == kv_heads is multi-head attention, kv_heads == 1 is multi-query. Window, softcap, biases and dropout are options.
#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "model/attention/rope_scaling.h"
#include "model/layers/linear.h"

namespace wyvern {
namespace {

struct GroupedQueryAttention {
  Linear qkv, o;                       // qkv: blocks q|k|v
  Param *q_norm = nullptr, *k_norm = nullptr;
  double norm_eps = 0;
  std::vector<double> inv_freq;        // empty: no rope
  double rope_magnitude = 1;
  int64_t D = 0, window = 0;
  double scale = 0, softcap = 0, dropout = 0;

  struct Saved {
    Linear::Saved qkv, o;
    Tensor raw;                        // (N, W)            q|k|v; turned in place when there is no q/k norm
    Tensor qk;                         // (N, (H + Hkv) D)  normed and turned, with a q/k norm only
    Tensor rq, rk;                     // (N, H), (N, Hkv)  statistics of the q/k norm
    Tensor out, lse;                   // (N, H D), (N, H)
  };
  struct Cache : wyvern::Cache { Tensor k, v, length; };

  int64_t H() const { return qkv.w->block(0) / D; }            // local heads
  int64_t Hkv() const { return qkv.w->block(1) / D; }

  AttentionShape shape(const Context& c) const {
    return {.H = H(), .Hkv = Hkv(), .D = D, .T = c.batch.T, .scale = scale, .window = window, .softcap = softcap,
            .dropout = c.mode == Mode::train ? dropout : 0, .key = c.rng.key(Purpose::attention),
            .first_sequence = c.batch.first_sequence, .first_head = c.mesh.tp->rank() * H()};
  }
  // q.k and p.v over the causal half: 2 products x 2 FLOP x heads x head_dim x reach / 2.
  int64_t mixing_flops(int64_t T) const { return 2 * H() * D * (window > 0 ? std::min(T, window) : T); }
  Columns q(const Saved& s) const { return {s.qk ? s.qk : s.raw, 0}; }
  Columns k(const Saved& s) const { return {s.qk ? s.qk : s.raw, H() * D}; }
  Columns v(const Saved& s) const { return {s.raw, (H() + Hkv()) * D}; }

  void turn(Context& c, Tensor qk, bool backward) const {      // rope on the q and k columns, in place
    if (inv_freq.empty()) return;
    rope(c.stream, {.out = {qk, 0}, .x = {qk, 0}, .positions = c.batch.positions, .inv_freq = inv_freq.data(), .magnitude = rope_magnitude,
                    .groups = H() + Hkv(), .D = D, .backward = backward});
  }

  void project(Context& c, Saved& s, Tensor x) const {
    const int64_t N = x.dim[0];
    const DType acc = acc_of(x.dtype);
    s.raw = c.saved.alloc(x.dtype, {N, qkv.outputs()}, "attn.qkv");
    qkv.forward(c, s.qkv, s.raw, x);
    if (q_norm) {
      s.qk = c.saved.alloc(x.dtype, {N, (H() + Hkv()) * D}, "attn.qk");
      s.rq = c.saved.alloc(acc, {N, H()}, "attn.rq");
      s.rk = c.saved.alloc(acc, {N, Hkv()}, "attn.rk");
      norm_forward(c.stream, {.out = s.qk, .rstd = s.rq, .x = s.raw, .w = q_norm->value, .eps = norm_eps, .groups = H(), .D = D});
      norm_forward(
          c.stream,
          {.out = s.qk, .rstd = s.rk, .x = s.raw, .w = k_norm->value, .eps = norm_eps, .groups = Hkv(), .D = D, .offset = H() * D});
    }
    turn(c, s.qk ? s.qk : s.raw, false);
    s.out = c.saved.alloc(x.dtype, {N, H() * D}, "attn.out");
  }

  void forward(Context& c, Saved& s, Tensor y, Tensor x) const {
    project(c, s, x);
    s.lse = c.saved.alloc(acc_of(x.dtype), {x.dim[0], H()}, "attn.lse");
    attention_forward(c.stream,
                      {.out = s.out, .lse = s.lse, .q = q(s), .k = k(s), .v = v(s), .doc_starts = c.batch.doc_starts, .shape = shape(c)});
    o.forward(c, s.o, y, s.out);
  }

  void backward(Context& c, const Saved& s, Tensor dx, Tensor dy) const {
    Arena::Scope scope(c.scratch);
    const int64_t N = dx.dim[0];
    Tensor dout = c.scratch.alloc(dx.dtype, {N, H() * D}, "attn.dout");
    Tensor draw = c.scratch.alloc(dx.dtype, {N, qkv.outputs()}, "attn.dqkv");
    Tensor dqk = s.qk ? c.scratch.alloc(dx.dtype, {N, (H() + Hkv()) * D}, "attn.dqk") : draw;
    o.backward(c, s.o, dout, dy);
    attention_backward(c.stream, {.dq = {dqk, 0},
                                  .dk = {dqk, H() * D},
                                  .dv = {draw, (H() + Hkv()) * D},
                                  .dout = dout,
                                  .out = s.out,
                                  .lse = s.lse,
                                  .q = q(s),
                                  .k = k(s),
                                  .v = v(s),
                                  .doc_starts = c.batch.doc_starts,
                                  .shape = shape(c)});
    turn(c, dqk, true);
    if (q_norm) {
      norm_backward(c.stream,
                    {.dx = draw, .dw = q_norm->grad, .dout = dqk, .x = s.raw, .rstd = s.rq, .w = q_norm->value, .groups = H(), .D = D});
      norm_backward(c.stream, {.dx = draw,
                               .dw = k_norm->grad,
                               .dout = dqk,
                               .x = s.raw,
                               .rstd = s.rk,
                               .w = k_norm->value,
                               .groups = Hkv(),
                               .D = D,
                               .offset = H() * D});
    }
    qkv.backward(c, s.qkv, dx, draw);
  }

  std::unique_ptr<wyvern::Cache> make_cache(Stream& s, Arena& a, DType dtype, int64_t B, int64_t capacity) const {
    auto cache = std::make_unique<Cache>();
    cache->k = a.alloc(dtype, {B, capacity, Hkv() * D}, "cache.k");
    cache->v = a.alloc(dtype, {B, capacity, Hkv() * D}, "cache.v");
    cache->length = a.alloc(DType::i32, {B}, "cache.length");
    zero(s, {.y = cache->length});
    return cache;
  }
  void decode(Context& c, Cache& cache, Tensor y, Tensor x) const {
    Saved s;
    project(c, s, x);
    attention_decode(c.stream, {.out = s.out,
                                .k_cache = cache.k,
                                .v_cache = cache.v,
                                .length = cache.length,
                                .q = q(s),
                                .k = k(s),
                                .v = v(s),
                                .positions = c.batch.positions,
                                .shape = shape(c)});
    o.forward(c, s.o, y, s.out);
  }
};

}  // namespace

std::unique_ptr<Branch> make_gqa(LayerSpec& spec) {
  const Node& n = spec.config;
  const int64_t C = spec.channels, H = n.integer("heads", {}, {1, 65536}, "query heads");
  const int64_t Hkv = n.integer("kv_heads", H, {1, 65536}, "key/value heads; 1 = multi-query");
  const int64_t D = n.integer("head_dim", std::max<int64_t>(1, C / H), {1, 4096}, "channels of a head");
  if (!n.has("head_dim") && C % H)
    n.error("heads", fmt::format("{} channels are not divisible by {} heads; choose a divisor or give head_dim", C, H));
  if (H % Hkv) n.error("kv_heads", fmt::format("{} heads are not divisible by {} kv_heads", H, Hkv));
  const std::string bias = n.choice("bias", {"true", "false", "qkv"}, "false", "biases: on all projections, none, or on q, k, v only");
  const std::string qk_norm = n.choice("qk_norm", {"none", "head"}, "none", "RMSNorm of every q and k head before rope");

  GroupedQueryAttention a;
  a.D = D;
  a.qkv = column_linear(spec, "qkv", C, (H + 2 * Hkv) * D, bias != "false", {H * D, Hkv * D, Hkv * D});
  if (qk_norm == "head") {
    a.norm_eps = n.number("qk_norm_eps", spec.norm_eps, {0, 1, true}, "epsilon of the q/k norm");
    a.q_norm = &spec.add({.name = "q_norm.weight", .shape = {D}, .place = partial_grad(), .role = Role::vector, .init = init_ones()});
    a.k_norm = &spec.add({.name = "k_norm.weight", .shape = {D}, .place = partial_grad(), .role = Role::vector, .init = init_ones()});
  }
  if (const auto rope = read_rope(n)) {
    if (D % 2) n.error("head_dim", fmt::format("rope needs an even head_dim, not {}", D));
    a.inv_freq = rope_frequencies(*rope, D - D % 2);
    a.rope_magnitude = rope_magnitude(*rope);
  }
  a.window = n.integer_or_none("window", {}, {1, int64_t(1) << 40}, "a token sees itself and the window - 1 before it").value_or(0);
  a.softcap = n.number_or_none("softcap", {}, {0, 1e9, true}, "scores s become cap tanh(s / cap)").value_or(0);
  a.scale =
      n.number_or_none("scale", {}, {0, 1e9, true}, "factor on the scores; none = 1 / sqrt(head_dim)").value_or(1 / std::sqrt(double(D)));
  a.dropout = n.number("dropout", 0, {0, 0.99}, "probability that an attention weight is dropped in training");
  a.o = row_linear(spec, "o", H * D, C, bias == "true");
  return branch(std::move(a));
}

}  // namespace wyvern
