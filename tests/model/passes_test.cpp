// Forward and backward as a whole: packed documents, padding, recompute, dropout's keys, memory that was planned exactly.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/small_model.h"
#include "trainer/generate.h"

namespace wyvern {
namespace {

using Gradients = SmallModel::Gradients;
void expect_near(const Gradients& got, const Gradients& want, double tolerance, const std::string& what) {
  double all = 0;
  for (const auto& [name, g] : want) for (double x : g) all += x * x;
  for (const auto& [name, g] : want) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < g.size(); i++) {
      difference += (got.at(name)[i] - g[i]) * (got.at(name)[i] - g[i]);
      norm += g[i] * g[i];
    }
    // Key biases have no gradient but rounding: their bound comes from the gradient of everything.
    EXPECT_TRUE(std::sqrt(difference) <= tolerance * (std::sqrt(norm) + 1e-3 * std::sqrt(all)))
        << what << ": " << name << " off by " << std::sqrt(difference / norm);
  }
}

// ---- documents -----------------------------------------------------------------------------------------------------------

const std::vector<std::pair<int64_t, int64_t>> kDocuments = {{0, 5}, {5, 9}, {9, 12}, {12, 24}};      // rows [begin, end) of 2 x 12

HostBatch packed(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
  return HostBatch(2, kContext, tokens, targets, {5, 9});
}

// S10: no target crosses a boundary. The next token inside a document, -1 at its end.
std::vector<int32_t> targets_of(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> targets(tokens.size(), -1);
  for (const auto& [begin, end] : kDocuments)
    for (int64_t n = begin; n + 1 < end; n++) targets[size_t(n)] = tokens[size_t(n) + 1];
  return targets;
}

TEST(Documents, S10_S11_PackedEqualsOneByOne) {
  const auto tokens = random_tokens(24, 8), targets = targets_of(tokens);
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    std::vector<PassSize> passes = {{2, kContext, Mode::train}};
    for (const auto& [begin, end] : kDocuments) passes.push_back({1, end - begin, Mode::train});
    SmallModel m(v, DType::f64, passes);
    HostBatch whole = packed(tokens, targets);
    ASSERT_EQ(whole.valid_targets(), 20);                      // 24 tokens, 4 documents
    const auto together = m.fresh_train(whole);

    m.instance->params.zero_grad(m.instance->stream);
    SmallModel::Pass apart;
    double loss = 0;
    for (const auto& [begin, end] : kDocuments) {
      HostBatch one(1, end - begin, {tokens.begin() + begin, tokens.begin() + end}, {targets.begin() + begin, targets.begin() + end});
      one.batch().loss_scale = 1.0 / 20;
      apart = m.train(one);
      loss += apart.loss;
    }
    EXPECT_NEAR(together.loss, loss, 1e-13 * loss);
    expect_near(together.gradients, apart.gradients, 1e-12, "packed");
  }
}

// Token `row` is changed: which rows of logits may notice?
void expect_isolated(const Variant& v, DType dtype) {
  SCOPED_TRACE(v.name + " in " + name_of(dtype));
  SmallModel m(v, dtype, {{2, kContext, Mode::eval}});
  auto tokens = random_tokens(24, 8);
  HostBatch before = packed(tokens, targets_of(tokens));
  const auto want = m.logits(before);
  for (const int64_t row : {2, 4, 6, 11, 17}) {
    auto changed = tokens;
    changed[size_t(row)] = (changed[size_t(row)] + 1) % int32_t(kVocab);
    HostBatch after = packed(changed, targets_of(changed));
    const auto got = m.logits(after);
    for (const auto& [begin, end] : kDocuments)
      for (int64_t n = begin; n < end; n++) {
        const bool may_notice = row >= begin && row <= n && row < end;
        const bool same = row_of(got, n, kPadded) == row_of(want, n, kPadded);
        EXPECT_TRUE(same || may_notice) << "row " << n << " saw row " << row;
        EXPECT_FALSE(same && row == n) << "row " << n << " did not see itself";
      }
  }
}

TEST(Documents, S11_NoTokenSeesAnotherDocumentOrTheFuture) {
  for (const Variant& v : variants())
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) expect_isolated(v, dtype);
  expect_isolated({"wide", kModern, {"model.channels=64", kAttention + "head_dim=32"}}, DType::bf16);
}

// ---- targets and padding ---------------------------------------------------------------------------------------------------

TEST(Targets, S17_NothingToLearnGivesZeroAndNoNaN) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const Variant& v : variants()) {
      SmallModel m(v, dtype, {{2, kContext, Mode::train}, {2, kContext, Mode::eval}});
      m.instance->params.zero_grad(m.instance->stream);
      HostBatch host(2, kContext, random_tokens(24, 8), std::vector<int32_t>(24, -1));
      for (const double scale : {0.0, 1.0}) {
        host.batch().loss_scale = scale;
        const auto pass = m.train(host);
        EXPECT_EQ(pass.loss, 0) << v.name;
        for (const auto& [name, g] : pass.gradients) EXPECT_EQ(g, std::vector<double>(g.size(), 0)) << v.name << ": " << name;
        EXPECT_EQ(m.eval(host), 0) << v.name;
      }
    }
}

// Whatever stands in the rows of the padded vocabulary: same loss and gradients to the bit, and no gradient there.
TEST(Padding, ValuesThereNeverMatter) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const std::string& yaml : {kGpt, kModern}) {
      SmallModel m(yaml, {"model.head.softcap=5"}, dtype, {{2, kContext, Mode::train}});
      HostBatch host = random_batch(2, kContext, 3);
      const auto want = m.fresh_train(host);
      Param& head = m.at(m.config.tied ? "embed.tokens.weight" : "head.weight");
      for (const double poison : {1e20, -1e20}) {
        fill(rows(head.value, kVocab, kPadded), poison);
        const auto got = m.fresh_train(host);
        EXPECT_EQ(got.loss, want.loss);
        EXPECT_EQ(got.gradients, want.gradients);
      }
      const auto& g = want.gradients.at(head.name);
      EXPECT_EQ(std::vector<double>(g.begin() + kVocab * m.config.channels, g.end()),
                std::vector<double>(size_t((kPadded - kVocab) * m.config.channels), 0));
    }
}

TEST(MicroBatches, AddUpToTheBatch) {                          // S13, S14, S41 at the model: dropout included
  for (const std::string& yaml : {kGpt, kModern}) {
    SmallModel m(yaml, kDropout, DType::f64, {{4, kContext, Mode::train}});
    const auto tokens = random_tokens(4 * kContext, 8);
    auto targets = random_tokens(4 * kContext, 9);
    for (size_t i = 0; i < 17; i++) targets[i] = -1;           // the micro-batches hold different numbers of targets
    HostBatch whole(4, kContext, tokens, targets);
    const auto want = m.fresh_train(whole);
    m.instance->params.zero_grad(m.instance->stream);
    SmallModel::Pass got;
    double loss = 0;
    for (int64_t b = 0; b < 4; b++) {
      HostBatch one(1, kContext, {tokens.begin() + b * kContext, tokens.begin() + (b + 1) * kContext},
                    {targets.begin() + b * kContext, targets.begin() + (b + 1) * kContext});
      one.batch().first_sequence = b;
      one.batch().loss_scale = 1.0 / double(whole.valid_targets());
      got = m.train(one);
      loss += got.loss;
    }
    EXPECT_NEAR(loss, want.loss, 1e-13 * want.loss);
    expect_near(got.gradients, want.gradients, 1e-12, "micro-batches");
  }
}

// ---- recompute and dropout ---------------------------------------------------------------------------------------------------

TEST(Recompute, ChangesNoBit) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const std::string& yaml : {kGpt, kModern})
      for (const char* place : {"pre", "post", "both", "none"}) {
        SCOPED_TRACE(fmt::format("{} norms in {}", place, name_of(dtype)));
        const Overrides o = with(kDropout, {std::string("model.norm.place=") + place});
        HostBatch host = random_batch(2, kContext, 3, {7});
        SmallModel keep(yaml, o, dtype, {{2, kContext, Mode::train}});
        const auto want = keep.fresh_train(host);
        int64_t saved = keep.instance->memory.saved;
        for (const char* recompute : {"{every: 2}", "all"}) {
          SmallModel m(yaml, with(o, {std::string("model.recompute=") + recompute}), dtype, {{2, kContext, Mode::train}});
          const auto got = m.fresh_train(host);
          EXPECT_EQ(got.loss, want.loss) << recompute;
          EXPECT_EQ(got.gradients, want.gradients) << recompute;
          EXPECT_LT(m.instance->memory.saved, saved) << recompute << " saves no memory";
          saved = m.instance->memory.saved;
        }
      }
}

// Sublayers that write constants, attention 1 and ffn 10: with p = 0.5 the stream tells every mask apart.
struct Masks {
  static std::vector<std::vector<double>> of(SmallModel& m, HostBatch& host, RngKey rng) {
    for (const auto& p : m.instance->params.all()) fill(p->value, 0);
    fill(m.at("embed.tokens.weight").value, 1);
    for (int l = 0; l < 3; l++) {
      fill(m.at(fmt::format("layers.{}.attn.o.bias", l)).value, 1);
      fill(m.at(fmt::format("layers.{}.ffn.down.bias", l)).value, 10);
    }
    m.instance->reset();
    Context c = m.instance->context(host.batch(), Mode::train, rng);
    m.instance->model.forward(c);
    std::vector<std::vector<double>> masks = {to_doubles(m.instance->model.stream(0))};      // the embedding's
    for (double& x : masks[0]) x /= 2;
    for (int l = 0; l < 3; l++) {
      const auto before = to_doubles(m.instance->model.stream(l)), after = to_doubles(m.instance->model.stream(l + 1));
      std::vector<double> attn, ffn;
      for (size_t i = 0; i < before.size(); i++) {
        const double sum = (after[i] - before[i]) / 2, f = std::floor(sum / 10);
        ffn.push_back(f);
        attn.push_back(sum - 10 * f);
      }
      masks.push_back(attn);
      masks.push_back(ffn);
    }
    return masks;
  }
};
double share_that_differs(const std::vector<double>& a, const std::vector<double>& b) {
  double n = 0;
  for (size_t i = 0; i < a.size(); i++) n += a[i] != b[i];
  return n / double(a.size());
}

TEST(DropoutKeys, EverySublayerStepAndSequenceHasItsOwnMask) {
  SmallModel m(kGpt, {"model.embedding.dropout=0.5", "model.residual.dropout=0.5"}, DType::f64, {{2, kContext, Mode::train}});
  HostBatch host = random_batch(2, kContext, 3);
  auto masks = Masks::of(m, host, {7, 3, -1});
  ASSERT_EQ(masks.size(), 7u);
  for (const auto& mask : masks)
    for (double x : mask) ASSERT_TRUE(x == 0 || x == 1) << x;
  EXPECT_EQ(Masks::of(m, host, {7, 3, -1}), masks);
  for (const RngKey& other : {RngKey{7, 4, -1}, RngKey{8, 3, -1}})
    for (auto& mask : Masks::of(m, host, other)) masks.push_back(mask);
  HostBatch later = random_batch(2, kContext, 3);
  later.batch().first_sequence = 2;
  for (auto& mask : Masks::of(m, later, {7, 3, -1})) masks.push_back(mask);
  const double bound = 5 * 0.5 / std::sqrt(double(masks[0].size()));      // 378 pairs of 384 fair coins: five deviations
  for (size_t i = 0; i < masks.size(); i++) {
    EXPECT_NEAR(share_that_differs(masks[i], std::vector<double>(masks[i].size(), 0)), 0.5, bound) << "mask " << i;
    for (size_t j = 0; j < i; j++) EXPECT_NEAR(share_that_differs(masks[i], masks[j]), 0.5, bound) << "masks " << i << " and " << j;
  }
}

TEST(DropoutKeys, ASequencesMaskIsTheSameInAnyMicroBatch) {
  SmallModel m(kGpt, {"model.embedding.dropout=0.5", "model.residual.dropout=0.5"}, DType::f64, {{2, kContext, Mode::train}});
  HostBatch both = random_batch(2, kContext, 3), second = random_batch(1, kContext, 3);
  second.batch().first_sequence = 1;
  const auto whole = Masks::of(m, both, {7, 3, -1}), alone = Masks::of(m, second, {7, 3, -1});
  for (size_t i = 0; i < whole.size(); i++)
    EXPECT_EQ(std::vector<double>(whole[i].begin() + kContext * 16, whole[i].end()), alone[i]) << "mask " << i;
}

// Values of 1 under uniform attention: a head's output is the share of keys that it kept, doubled.
TEST(DropoutKeys, AttentionMasksDifferByLayerHeadAndStep) {
  SmallModel m(kGpt, {kAttention + "dropout=0.5"}, DType::f64, {{2, kContext, Mode::train}});
  for (const auto& p : m.instance->params.all()) fill(p->value, 0);
  for (int l = 0; l < 3; l++) {
    fill(rows(m.at(fmt::format("layers.{}.attn.qkv.bias", l)).value, 32, 48), 1);            // v
    Tensor o = m.at(fmt::format("layers.{}.attn.o.weight", l)).value;
    for (int64_t i = 0; i < 16; i++) as<double>(o)[i * 16 + i] = 1;
  }
  HostBatch host = random_batch(2, kContext, 3);
  std::vector<std::vector<double>> outputs;                    // of (step, layer, head)
  for (const uint64_t step : {3, 4}) {
    m.instance->reset();
    Context c = m.instance->context(host.batch(), Mode::train, {7, step, -1});
    m.instance->model.forward(c);
    for (int l = 0; l < 3; l++) {
      const auto before = to_doubles(m.instance->model.stream(l)), after = to_doubles(m.instance->model.stream(l + 1));
      for (int64_t h = 0; h < 4; h++) {
        outputs.emplace_back();
        for (int64_t n = 0; n < 24; n++) outputs.back().push_back(after[size_t(n * 16 + 4 * h)] - before[size_t(n * 16 + 4 * h)]);
      }
    }
  }
  for (size_t i = 0; i < outputs.size(); i++)
    for (size_t j = 0; j < i; j++) EXPECT_GT(share_that_differs(outputs[i], outputs[j]), 0.4) << i << " and " << j;
}

TEST(Dropout, IsOffOutsideTraining) {
  HostBatch host = random_batch(2, kContext, 3);
  host.batch().loss_scale = 1.0 / 24;
  SmallModel with_dropout(kGpt, kDropout, DType::f32, {{2, kContext, Mode::eval}, {2, kContext, Mode::train}}),
      without(kGpt, {}, DType::f32, {{2, kContext, Mode::eval}});
  EXPECT_EQ(with_dropout.eval(host), without.eval(host));
  EXPECT_NE(with_dropout.fresh_train(host).loss, without.eval(host));
}

TEST(Evaluation, EqualsTheTrainingForwardInF64) {              // BF16 rounds the training logits, so only F64 says something
  for (const Variant& v : variants()) {
    SmallModel m(v, DType::f64, {{2, kContext, Mode::eval}, {2, kContext, Mode::train}});
    HostBatch host = random_batch(2, kContext, 3, {4});
    const double trained = m.fresh_train(host).loss;
    EXPECT_NEAR(m.eval(host), trained, 1e-14 * trained) << v.name;
  }
}

// ---- memory --------------------------------------------------------------------------------------------------------------------

struct PoisonOn {
  PoisonOn() { setenv("WYVERN_POISON", "1", 1); }
  ~PoisonOn() { unsetenv("WYVERN_POISON"); }
};

struct Everything {
  SmallModel::Pass pass;
  double eval = 0;
  std::vector<int32_t> text;
  bool operator==(const Everything& o) const {
    return pass.loss == o.pass.loss && pass.gradients == o.pass.gradients && eval == o.eval && text == o.text;
  }
};
Everything run(const Variant& v, const Overrides& more, DType dtype) {
  std::vector<PassSize> passes = generation_passes(3);
  passes.push_back({2, kContext, Mode::train});
  passes.push_back({2, kContext, Mode::eval});
  SmallModel m(v.yaml, with(v.overrides, more), dtype, passes);
  HostBatch host = random_batch(2, kContext, 3, {5});
  Everything e;
  e.pass = m.fresh_train(host);
  e.eval = m.eval(host);
  e.text = generate(*m.instance, {1, 2, 3}, {.tokens = 6, .temperature = 0}).tokens;
  return e;
}

TEST(Memory, PoisonedArenasChangeNoBit) {
  for (const DType dtype : {DType::f64, DType::bf16})
    for (const Variant& v : variants())
      for (const char* recompute : {"none", "all"}) {
        const Overrides more = with(kDropout, {std::string("model.recompute=") + recompute});
        const Everything clean = run(v, more, dtype);
        PoisonOn poison;
        EXPECT_TRUE(run(v, more, dtype) == clean) << v.name << " in " << name_of(dtype) << ", recompute " << recompute;
      }
}

TEST(Memory, TheDryPassIsExact) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const Variant& v : variants())
      for (const char* recompute : {"none", "all", "{every: 2}"}) {
        SCOPED_TRACE(fmt::format("{} in {}, recompute {}", v.name, name_of(dtype), recompute));
        const Overrides o = with(v.overrides, with(kDropout, {std::string("model.recompute=") + recompute}));
        HostBatch host = random_batch(2, kContext, 3, {5});
        SmallModel train(v.yaml, o, dtype, {{2, kContext, Mode::train}}), eval(v.yaml, o, dtype, {{2, kContext, Mode::eval}}),
            decode(v.yaml, o, dtype, generation_passes(3));
        train.fresh_train(host);
        eval.eval(host);
        generate(*decode.instance, {1, 2, 3}, {.tokens = 4});
        for (const SmallModel* m : {&train, &eval, &decode}) {
          EXPECT_EQ(m->instance->saved.high_water(), m->instance->memory.saved);
          EXPECT_EQ(m->instance->scratch.high_water(), m->instance->memory.scratch);
          EXPECT_EQ(m->instance->param_arena.high_water(), m->instance->memory.parameters + m->instance->memory.gradients);
        }
      }
}

}  // namespace
}  // namespace wyvern
