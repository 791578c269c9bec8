// Decoding equals forward, whatever the prompt is cut into, for every option of the softmax layers.
#include <gtest/gtest.h>

#include "tests/model/small_model.h"
#include "trainer/generate.h"

namespace wyvern {
namespace {

constexpr int64_t kBatch = 2;
const std::vector<PassSize> kPasses = {{kBatch, kContext, Mode::eval}, {kBatch, kContext, Mode::decode}, {kBatch, 1, Mode::decode}};

// Logits of every position, decoded in pieces of the given lengths; rows in the order of a forward pass.
std::vector<double> decode_in_pieces(SmallModel& m, const std::vector<int32_t>& tokens, const std::vector<int64_t>& pieces,
                                     Model::Caches& caches) {
  const int64_t V = m.config.padded_vocab;
  std::vector<double> all(size_t(kBatch * kContext * V));
  int64_t first = 0;
  for (const int64_t T : pieces) {
    std::vector<int32_t> next;
    for (int64_t b = 0; b < kBatch; b++)
      next.insert(next.end(), tokens.begin() + b * kContext + first, tokens.begin() + b * kContext + first + T);
    HostBatch host = HostBatch::decode(kBatch, T, next, first);
    const auto out = m.logits(host, &caches);
    for (int64_t b = 0; b < kBatch; b++) std::copy_n(out.begin() + b * T * V, T * V, all.begin() + (b * kContext + first) * V);
    first += T;
  }
  EXPECT_EQ(first, kContext);
  return all;
}

void expect_decode_equals_forward(const Variant& v, DType dtype, double tolerance) {
  SCOPED_TRACE(v.name + " in " + name_of(dtype));
  SmallModel m(v, dtype, kPasses);
  Arena arena(1 << 20, true);
  Model::Caches caches = m.instance->model.make_caches(m.instance->stream, arena, kBatch, kContext);
  HostBatch host = random_batch(kBatch, kContext, 4);
  const auto tokens = random_tokens(kBatch * kContext, 4);
  const auto want = m.logits(host);
  const int64_t V = m.config.padded_vocab;
  const std::vector<std::vector<int64_t>> cuts = {std::vector<int64_t>(kContext, 1), {kContext}, {5, 1, 1, 1, 1, 1, 1, 1}, {4, 3, 5}};
  for (const auto& pieces : cuts) {                                    // the caches are used again: position 0 starts anew
    const auto got = decode_in_pieces(m, tokens, pieces, caches);
    for (int64_t n = 0; n < kBatch * kContext; n++)
      expect_near(row_of(got, n, V), row_of(want, n, V), tolerance, fmt::format("row {} in {} pieces", n, pieces.size()));
  }
}

TEST(Decode, S57_EqualsForwardInF64) { for (const Variant& v : variants()) expect_decode_equals_forward(v, DType::f64, 1e-12); }
TEST(Decode, S57_EqualsForwardInF32) { for (const Variant& v : variants()) expect_decode_equals_forward(v, DType::f32, 1e-5); }
TEST(Decode, S57_EqualsForwardInBf16) { for (const Variant& v : variants()) expect_decode_equals_forward(v, DType::bf16, 2e-2); }

TEST(Decode, WideHeadsInBf16) {                                        // head_dim 32 takes the matrix unit's attention where there is one
  expect_decode_equals_forward({"wide", kModern, {"model.channels=64", kAttention + "head_dim=32"}}, DType::bf16, 2e-2);
}

TEST(Decode, ADocumentThatStartsAnewForgetsTheLast) {
  SmallModel m(kGpt, {}, DType::f64, kPasses);
  Arena arena(1 << 20, true);
  Model::Caches caches = m.instance->model.make_caches(m.instance->stream, arena, 1, kContext);
  const auto decode = [&](std::vector<int32_t> tokens, int64_t first) {
    const int64_t T = int64_t(tokens.size());
    HostBatch host = HostBatch::decode(1, T, std::move(tokens), first);
    return m.logits(host, &caches);
  };
  const auto alone = decode({3, 1, 4}, 0);
  decode({9, 2, 6, 5}, 0);
  decode({8}, 4);
  EXPECT_EQ(decode({3, 1, 4}, 0), alone);
}

std::vector<int32_t> generated(SmallModel& m, const SampleOptions& o) { return generate(*m.instance, {1, 2, 3}, o).tokens; }

TEST(Generate, GreedyIsTheArgmaxOfForward) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    std::vector<PassSize> passes = generation_passes(3);
    passes.push_back({1, kContext, Mode::eval});
    SmallModel m(v, DType::f64, passes);
    std::vector<int32_t> tokens = {1, 2, 3};
    while (int64_t(tokens.size()) < kContext) {
      const int64_t T = int64_t(tokens.size());
      HostBatch host(1, T, tokens, tokens);
      const auto last = row_of(m.logits(host), T - 1, kPadded);
      tokens.push_back(int32_t(std::max_element(last.begin(), last.begin() + kVocab) - last.begin()));
    }
    const auto got = generated(m, {.tokens = kContext - 3, .temperature = 0});
    EXPECT_EQ(got, std::vector<int32_t>(tokens.begin() + 3, tokens.end()));
  }
}

TEST(Generate, S77_StopsWhereTheContextEnds) {
  SmallModel m(kGpt, {}, DType::f32, generation_passes(3));
  const Generation g = generate(*m.instance, {1, 2, 3}, {.tokens = 100, .temperature = 0});
  EXPECT_TRUE(g.context_full);
  EXPECT_EQ(int64_t(g.tokens.size()), kContext - 3 + 1);               // the token after the last position can still be named
  EXPECT_FALSE(generate(*m.instance, {1, 2, 3}, {.tokens = kContext - 2, .temperature = 0}).context_full);
  EXPECT_TRUE(generated(m, {.tokens = 0}).empty());
}

TEST(Generate, StopTokenEndsTheText) {
  SmallModel m(kGpt, {}, DType::f32, generation_passes(3));
  const auto free = generated(m, {.tokens = 8, .temperature = 0});
  const auto stopped = generated(m, {.tokens = 8, .temperature = 0, .stop = free[2]});
  const auto at = std::find(free.begin(), free.end(), free[2]);
  EXPECT_EQ(stopped, std::vector<int32_t>(free.begin(), at));
}

// Padded rows of the vocabulary, however large their logits, are never drawn.
TEST(Generate, PaddingIsNeverDrawn) {
  for (const char* tied : {"model.head.tied=true", "model.head.tied=false"}) {
    SmallModel m(kGpt, {tied}, DType::f32, generation_passes(3));
    Param& head = m.at(m.config.tied ? "embed.tokens.weight" : "head.weight");
    const auto greedy = generated(m, {.tokens = 8, .temperature = 0}), drawn = generated(m, {.tokens = 8, .temperature = 1.5, .seed = 4});
    fill(rows(head.value, kVocab, kPadded), 1e20);
    EXPECT_EQ(generated(m, {.tokens = 8, .temperature = 0}), greedy);
    EXPECT_EQ(generated(m, {.tokens = 8, .temperature = 1.5, .seed = 4}), drawn);
    fill(rows(head.value, kVocab, kPadded), -1e20);
    EXPECT_EQ(generated(m, {.tokens = 8, .temperature = 1.5, .seed = 4}), drawn);
  }
}

TEST(Sampling, FollowsTheProbabilities) {
  const double logits[4] = {std::log(0.5), std::log(0.3), std::log(0.15), std::log(0.05)};
  const auto frequencies = [&](SampleOptions o) {
    std::vector<double> f(4);
    for (int64_t i = 0; i < 20000; i++) f[size_t(sample_token(logits, 4, o, i))] += 1.0 / 20000;
    return f;
  };
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < 4; i++) EXPECT_NEAR(got[i], want[i], want[i] > 0 ? 0.0142 : 0) << i;      // four deviations of 20,000 draws
  };
  expect(frequencies({.temperature = 1}), {0.5, 0.3, 0.15, 0.05});
  expect(frequencies({.temperature = 1, .top_k = 2}), {0.625, 0.375, 0, 0});
  expect(frequencies({.temperature = 1, .top_p = 0.81}), {0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0});   // the smallest set of at least 0.81
  const double z = 0.25 + 0.09 + 0.0225 + 0.0025;
  expect(frequencies({.temperature = 0.5}), {0.25 / z, 0.09 / z, 0.0225 / z, 0.0025 / z});
  EXPECT_NEAR(frequencies({.temperature = 0})[0], 1, 1e-9);
  EXPECT_NEAR(frequencies({.temperature = 1, .top_p = 0})[0], 1, 1e-9);
  EXPECT_NEAR(frequencies({.temperature = 1, .top_k = 1})[0], 1, 1e-9);
}

}  // namespace
}  // namespace wyvern
