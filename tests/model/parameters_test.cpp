// What a model is made of: names, counts, initial values.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/model/small_model.h"

namespace wyvern {
namespace {

using Names = std::vector<std::string>;
Names names_of(const SmallModel& m) {
  Names names;
  for (const auto& p : m.instance->params.all()) names.push_back(p->name);
  return names;
}

TEST(Parameters, OfTheGptFamily) {
  SmallModel m(kGpt, {"model.layers[0].times=1"}, DType::f32, {});
  EXPECT_EQ(names_of(m), (Names{"embed.tokens.weight", "embed.positions.weight", "layers.0.attn.norm.weight", "layers.0.attn.norm.bias",
                                "layers.0.attn.qkv.weight", "layers.0.attn.qkv.bias", "layers.0.attn.o.weight", "layers.0.attn.o.bias",
                                "layers.0.ffn.norm.weight", "layers.0.ffn.norm.bias", "layers.0.ffn.up.weight", "layers.0.ffn.up.bias",
                                "layers.0.ffn.down.weight", "layers.0.ffn.down.bias", "final.norm.weight", "final.norm.bias"}));
  const int64_t C = 16, F = 24;
  const int64_t layer = 4 * C + (3 * C * C + 3 * C) + (C * C + C) + (C * F + F) + (F * C + C);
  EXPECT_EQ(m.instance->params.count(), kVocab * C + kContext * C + layer + 2 * C);
  SmallModel three(kGpt, {}, DType::f32, {});
  EXPECT_EQ(three.instance->params.count(), kVocab * C + kContext * C + 3 * layer + 2 * C);
}

TEST(Parameters, OfTheModernFamily) {
  SmallModel m(kModern, {"model.layers[0].times=1", "model.norm.place=both"}, DType::f32, {});
  EXPECT_EQ(names_of(m), (Names{"embed.tokens.weight", "layers.0.attn.norm.weight", "layers.0.attn.qkv.weight",
                                "layers.0.attn.q_norm.weight", "layers.0.attn.k_norm.weight", "layers.0.attn.o.weight",
                                "layers.0.attn.post_norm.weight", "layers.0.ffn.norm.weight", "layers.0.ffn.gate_up.weight",
                                "layers.0.ffn.down.weight", "layers.0.ffn.post_norm.weight", "final.norm.weight", "head.weight"}));
  const int64_t C = 16, F = 20, H = 4, Hkv = 2, D = 6;
  const int64_t layer = 4 * C + (H + 2 * Hkv) * D * C + 2 * D + C * H * D + 2 * F * C + C * F;
  EXPECT_EQ(m.instance->params.count(), 2 * kVocab * C + layer + C);
  EXPECT_EQ(m.at("head.weight").padding, kPadded - kVocab);
}

TEST(Parameters, RolesAreWhatTheOptimizerMatches) {
  for (const std::string& yaml : {kGpt, kModern}) {
    SmallModel m(yaml, {}, DType::f32, {});
    for (const auto& p : m.instance->params.all()) {
      const bool embedding = p->name.starts_with("embed."), head = p->name == "head.weight";
      const Role want = embedding ? Role::embedding : head ? Role::head : p->shape.size() == 1 ? Role::vector : Role::matrix;
      EXPECT_EQ(p->role, want) << p->name;
    }
  }
}

TEST(Initialisation, DependsOnSeedAndNameAlone) {
  SmallModel small(kGpt, {"model.layers[0].times=1", "model.init.residual_scale=false"}, DType::f32, {});
  SmallModel large(kGpt, {"model.layers[0].times=3", "model.init.residual_scale=false", "model.norm.place=both", "model.head.tied=false"},
                   DType::f32, {});
  small.instance->params.initialise(small.instance->stream, 5);
  large.instance->params.initialise(large.instance->stream, 5);
  for (const auto& p : small.instance->params.all()) EXPECT_EQ(to_doubles(p->value), to_doubles(large.at(p->name).value)) << p->name;
  EXPECT_NE(to_doubles(large.at("layers.0.attn.qkv.weight").value), to_doubles(large.at("layers.1.attn.qkv.weight").value));

  const auto before = to_doubles(small.at("layers.0.attn.qkv.weight").value);
  small.instance->params.initialise(small.instance->stream, 6);
  EXPECT_NE(to_doubles(small.at("layers.0.attn.qkv.weight").value), before);
  small.instance->params.initialise(small.instance->stream, 5);
  EXPECT_EQ(to_doubles(small.at("layers.0.attn.qkv.weight").value), before);
}

TEST(Initialisation, MomentsOfANormal) {
  SmallModel m(kGpt, {"model.channels=128", kAttention + "heads=8"}, DType::f32, {});
  m.instance->params.initialise(m.instance->stream, 11);
  for (const char* name : {"layers.0.attn.qkv.weight", "layers.2.attn.qkv.weight"}) {
    const auto v = to_doubles(m.at(name).value);
    const double n = double(v.size());
    double mean = 0, square = 0, fourth = 0, lag = 0;
    for (double x : v) mean += x / n;
    for (double x : v) { square += x * x / n; fourth += x * x * x * x / n; }
    for (size_t i = 0; i + 1 < v.size(); i += 2) lag += v[i] * v[i + 1] * 2 / n;      // the two halves of one draw
    const double std = std::sqrt(square), sigma = 4 / std::sqrt(n);                   // 49,152 values: bounds of four deviations
    EXPECT_NEAR(mean / 0.02, 0, sigma) << name;
    EXPECT_NEAR(std / 0.02, 1, sigma) << name;
    EXPECT_NEAR(fourth / (square * square), 3, sigma * std::sqrt(24.0)) << name;
    EXPECT_NEAR(lag / square, 0, sigma * std::sqrt(2.0)) << name;
  }
}

TEST(Initialisation, OnlyWhatWritesToTheStreamIsScaled) {
  for (const std::string& yaml : {kGpt, kModern}) {
    SmallModel scaled(yaml, {}, DType::f64, {}), plain(yaml, {"model.init.residual_scale=false"}, DType::f64, {});
    scaled.instance->params.initialise(scaled.instance->stream, 5);
    plain.instance->params.initialise(plain.instance->stream, 5);
    for (const auto& p : scaled.instance->params.all()) {
      const bool output = p->name.ends_with(".o.weight") || p->name.ends_with(".down.weight");
      auto want = to_doubles(plain.at(p->name).value);
      for (double& x : want) x *= output ? 1 / std::sqrt(6.0) : 1.0;                  // three layers, two outputs each
      expect_near(to_doubles(p->value), want, 1e-15, p->name);
    }
  }
}

TEST(Initialisation, NormsAreOneAndBiasesZero) {
  SmallModel m(kGpt, {}, DType::bf16, {});
  m.instance->params.initialise(m.instance->stream, 5);
  for (const auto& p : m.instance->params.all()) {
    if (p->role != Role::vector) continue;
    for (double x : to_doubles(p->value)) EXPECT_EQ(x, p->name.ends_with("norm.weight") ? 1 : 0) << p->name;
  }
}

TEST(Initialisation, LossStartsNearTheLogarithmOfTheVocabulary) {
  for (const std::string& yaml : {kGpt, kModern}) {
    SmallModel m(yaml, {}, DType::f32, {{4, kContext, Mode::train}});
    m.instance->params.initialise(m.instance->stream, 5);
    HostBatch host = random_batch(4, kContext, 3);
    EXPECT_NEAR(m.fresh_train(host).loss, std::log(double(kVocab)), 0.05);            // logits of deviation 0.02 sqrt(16) = 0.08
  }
}

}  // namespace
}  // namespace wyvern
