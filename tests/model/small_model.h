// A model small enough for a test, from a few lines of YAML: its memory, values of real size, and what its passes leave.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "trainer/instance.h"

namespace wyvern {

inline constexpr int64_t kVocab = 29, kPadded = 32, kContext = 12;
using Overrides = std::vector<std::string>;

// GPT-2's family: learned positions, LayerNorm, biases, tied head.
inline const std::string kGpt = R"(model:
  vocab_size: 29
  padded_vocab: 32
  context: 12
  channels: 16
  embedding: {positions: learned}
  norm: {kind: layernorm}
  head: {tied: true}
  layers:
    - times: 3
      pattern:
        - attention: {kind: gqa, heads: 4, bias: true}
          ffn: {kind: mlp, hidden: 24, bias: true}
)";
// The modern dense family: rope, RMSNorm, grouped queries with q/k norm, SwiGLU, a head of its own.
inline const std::string kModern = R"(model:
  vocab_size: 29
  padded_vocab: 32
  context: 12
  channels: 16
  norm: {kind: rmsnorm, eps: 1.0e-6}
  layers:
    - times: 3
      pattern:
        - attention: {kind: gqa, heads: 4, kv_heads: 2, head_dim: 6, qk_norm: head, rope: {base: 100}}
          ffn: {kind: swiglu, hidden: 20}
)";
inline const std::string kAttention = "model.layers[0].pattern[0].attention.";

struct Variant { std::string name, yaml; Overrides overrides; };
// Every option of the softmax layers alone, and all of them together.
inline std::vector<Variant> variants() {
  const std::string a = kAttention;
  return {{"gpt", kGpt, {}},
          {"gpt without biases, gelu_erf",
           kGpt,
           {a + "bias=false", "model.norm.bias=false", "model.layers[0].pattern[0].ffn.activation=gelu_erf"}},
          {"bias on q, k, v alone", kGpt, {a + "bias=qkv"}},
          {"modern", kModern, {}},
          {"one key/value head", kModern, {a + "kv_heads=1"}},
          {"no q/k norm", kModern, {a + "qk_norm=none"}},
          {"no positions at all", kModern, {a + "rope=none"}},
          {"window", kModern, {a + "window=3"}},
          {"softcaps", kModern, {a + "softcap=2", "model.head.softcap=3"}},
          {"scale", kModern, {a + "scale=0.9"}},
          {"yarn", kModern, {a + "rope.scaling={kind: yarn, factor: 4, original_context: 16}"}},
          {"post norm", kModern, {"model.norm.place=post"}},
          {"both norms", kModern, {"model.norm.place=both"}},
          {"no norm", kGpt, {"model.norm.place=none"}},
          {"everything",
           kModern,
           {a + "bias=true", a + "window=4", a + "softcap=2", a + "scale=0.6", "model.embedding.positions=learned",
            "model.head={tied: true, softcap: 3}", "model.norm.place=both"}}};
}
inline const Overrides kDropout = {"model.embedding.dropout=0.2", "model.residual.dropout=0.3", kAttention + "dropout=0.25"};
inline Overrides with(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<double> to_doubles(const Tensor& t) {
  return with_float(t.dtype, [&]<class T>(T) {
    std::vector<double> v;
    for (int64_t i = 0; i < t.numel(); i++) v.push_back(double(acc_t<T>(as<T>(t)[i])));
    return v;
  });
}
inline void fill(const Tensor& t, double x) {
  with_float(t.dtype, [&]<class T>(T) { for (int64_t i = 0; i < t.numel(); i++) as<T>(t)[i] = T(acc_t<T>(x)); });
}
inline std::vector<int32_t> random_tokens(int64_t n, uint64_t seed, int64_t vocab = kVocab) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> t;
  for (int64_t i = 0; i < n; i++) t.push_back(int32_t(random() % uint64_t(vocab)));
  return t;
}

// |got - want| <= tolerance |want|, as one vector. Tolerance 0 compares bits (and so refuses NaN, as the other does).
inline void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); i++) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_TRUE(std::sqrt(difference) <= tolerance * std::sqrt(norm)) << what << ": relative error " << std::sqrt(difference / norm);
}

class SmallModel {
 public:
  using Gradients = std::map<std::string, std::vector<double>>;
  struct Pass { double loss = 0; std::vector<double> token_loss; Gradients gradients; };

  SmallModel(const std::string& yaml, const Overrides& overrides, DType dtype, const std::vector<PassSize>& passes)
      : tree_(ConfigTree::parse(yaml, "small.yaml", overrides)), config(ModelConfig::from(tree_.root().map("model", ""))),
        instance(std::make_unique<Instance>(config, dtype, nullptr, passes)) {
    tree_.check();
    randomise(1);
  }
  SmallModel(const Variant& v, DType dtype, const std::vector<PassSize>& passes) : SmallModel(v.yaml, v.overrides, dtype, passes) {}

  // Values of real size everywhere, the same for every type: at the usual initialisation zero biases and unit norms hide mistakes.
  void randomise(uint64_t seed) {
    std::normal_distribution<double> normal;
    for (const auto& p : instance->params.all()) {
      std::mt19937_64 random(mix(seed, p->name));
      const double base = p->init.kind == Init::ones ? 1 : 0, spread = p->role == Role::vector      ? 0.2
                                                                       : p->role == Role::embedding ? 0.5
                                                                                                    : 0.3;
      const int64_t trained = p->count();
      with_float(p->value.dtype, [&]<class T>(T) {
        for (int64_t i = 0; i < p->value.numel(); i++) as<T>(p->value)[i] = T(acc_t<T>(i < trained ? base + spread * normal(random) : 0));
      });
    }
    instance->params.touch();
  }
  Param& at(const std::string& name) const { return instance->params.at(name); }

  // Forward and backward; gradients add up over calls, and are all of them so far.
  Pass train(HostBatch& host, RngKey rng = {7, 3, -1}) {
    Pass p;
    instance->reset();
    Context c = instance->context(host.batch(), Mode::train, rng);
    p.loss = instance->model.forward(c);
    p.token_loss = to_doubles(instance->model.token_loss());
    instance->model.backward(c);
    for (const auto& q : instance->params.all()) p.gradients[q->name] = to_doubles(q->grad);
    return p;
  }
  // The mean loss of the valid targets, with gradients cleared first.
  Pass fresh_train(HostBatch& host, RngKey rng = {7, 3, -1}) {
    instance->params.zero_grad(instance->stream);
    host.batch().loss_scale = 1.0 / double(host.valid_targets());
    return train(host, rng);
  }
  double eval(HostBatch& host) {
    instance->reset();
    Context c = instance->context(host.batch(), Mode::eval);
    return instance->model.forward(c);
  }
  // (N, padded vocabulary), in Mode::eval or, with caches, the next tokens in Mode::decode.
  std::vector<double> logits(HostBatch& host, Model::Caches* caches = nullptr) {
    instance->reset();
    const DType acc = acc_of(instance->params.dtype());
    std::vector<char> memory(size_t(host.batch().N() * config.padded_vocab * bytes_of(acc)));
    const Tensor out = view(memory.data(), acc, {host.batch().N(), config.padded_vocab});
    Context c = instance->context(host.batch(), caches ? Mode::decode : Mode::eval);
    instance->model.logits(c, out, caches);
    return to_doubles(out);
  }

 private:
  ConfigTree tree_;                    // keeps the layers' maps alive

 public:
  ModelConfig config;
  std::unique_ptr<Instance> instance;
};

inline HostBatch random_batch(int64_t B, int64_t T, uint64_t seed, const std::vector<int32_t>& document_starts = {}) {
  return HostBatch(B, T, random_tokens(B * T, seed), random_tokens(B * T, seed + 1), document_starts);
}
inline std::vector<double> row_of(const std::vector<double>& m, int64_t row, int64_t width) {
  return {m.begin() + row * width, m.begin() + (row + 1) * width};
}

}  // namespace wyvern
