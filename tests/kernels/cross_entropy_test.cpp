#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;
constexpr int64_t kN = 7, kV = 24, kVocab = 21;                      // three columns of padding
constexpr double kScale = 0.125;
const std::vector<int32_t> kTargets = {0, 20, -1, 5, 11, -100, 12};  // ends, both halves, two ignored

// The two ops over `ranks` equal shards of the vocabulary, on a copy of the logits.
struct Loss {
  Loss(DType d, int64_t ranks, double softcap, double spread = 3)
      : ranks(ranks), softcap(softcap), logits(OwnedTensor::normal(d, {kN, kV}, 1, spread)), targets(OwnedTensor::ints(kTargets)),
        token_loss(acc_of(d), {kN}), stats(acc_of(d), {ranks * kN, 3}), dlogits(d, {kN, kV}),
        dloss(OwnedTensor::filled(acc_of(d), {kN}, kScale)) {
    for (int64_t r = 0; r < ranks; r++) shards.emplace_back(d, Shape{kN, kV / ranks});
  }
  void forward(bool write_gradient = false) {
    const int64_t width = kV / ranks;
    for (int64_t r = 0; r < ranks; r++) {
      for (int64_t i = 0; i < kN * width; i++) shards[size_t(r)].set(i, logits.get(i / width * kV + r * width + i % width));
      cross_entropy_stats(stream, {.stats = rows(stats, r * kN, (r + 1) * kN),
                                   .logits = shards[size_t(r)],
                                   .targets = targets,
                                   .vocab = kVocab,
                                   .first_column = r * width,
                                   .softcap = softcap});
    }
    for (int64_t r = 0; r < ranks; r++)
      cross_entropy_gradient(stream, {.logits = shards[size_t(r)],
                                      .token_loss = token_loss,
                                      .all_stats = stats,
                                      .targets = targets,
                                      .vocab = kVocab,
                                      .first_column = r * width,
                                      .scale = kScale,
                                      .softcap = softcap,
                                      .write_gradient = write_gradient});
  }
  void backward() {                                        // the gradient op replaces the logits
    forward(true);
    const int64_t width = kV / ranks;
    for (int64_t r = 0; r < ranks; r++)
      for (int64_t i = 0; i < kN * width; i++) dlogits.set(i / width * kV + r * width + i % width, shards[size_t(r)].get(i));
  }
  int64_t ranks;
  double softcap;
  OwnedTensor logits, targets, token_loss, stats, dlogits, dloss;
  std::vector<OwnedTensor> shards;
};

TEST(CrossEntropy, Gradients) {
  for (int64_t ranks : {1, 2, 8})                          // of eight shards the last is padding and nothing else
    for (double softcap : {0.0, 5.0}) {
      SCOPED_TRACE(testing::Message() << ranks << " shards, cap " << softcap);
      Loss loss(DType::f64, ranks, softcap);
      const DifferentiableOp op{[&] { loss.forward(); },
                                [&] { loss.backward(); },
                                {{"logits", loss.logits, loss.dlogits, Gives::written}},
                                {{loss.token_loss, loss.dloss}}};
      expect_gradients(op);
      expect_accumulates(op);
    }
}

TEST(CrossEntropy, ForwardIsTheDefinition) {
  for (double softcap : {0.0, 5.0}) {
    Loss loss(DType::f64, 1, softcap);
    loss.forward();
    for (int64_t n = 0; n < kN; n++) {
      const auto z = [&](int64_t v) {
        const double l = loss.logits.get(n * kV + v);
        return softcap > 0 ? softcap * std::tanh(l / softcap) : l;
      };
      double total = 0;
      for (int64_t v = 0; v < kVocab; v++) total += std::exp(z(v));
      const int32_t t = kTargets[size_t(n)];
      if (t < 0) EXPECT_EQ(loss.token_loss.get(n), 0);
      else EXPECT_NEAR(loss.token_loss.get(n), std::log(total) - z(t), 1e-13 * 10);
    }
  }
}

TEST(CrossEntropy, ShardsFoldToTheWhole) {
  Loss whole(DType::f64, 1, 5), cut(DType::f64, 2, 5);
  whole.backward();
  cut.backward();
  expect_close(Results{record("token_loss", cut.token_loss), record("dlogits", cut.dlogits)},
               Results{record("token_loss", whole.token_loss), record("dlogits", whole.dlogits)}, 1e-14);
}

TEST(CrossEntropy, IgnoredRowsAndPaddingGetExactlyNothing) {
  for (DType d : {DType::f64, DType::f32, DType::bf16}) {
    Loss loss(d, 2, 0);
    for (int64_t n = 0; n < kN; n++)                       // padding may hold anything, even what would overflow
      for (int64_t v = kVocab; v < kV; v++) loss.logits.set(n * kV + v, v % 2 ? std::numeric_limits<double>::infinity() : std::nan(""));
    loss.backward();
    for (int64_t n = 0; n < kN; n++) {
      double sum = 0, size = 0;
      for (int64_t v = 0; v < kV; v++) {
        const double g = loss.dlogits.get(n * kV + v);
        if (v >= kVocab || kTargets[size_t(n)] < 0) {
          ASSERT_EQ(g, 0) << n << ", " << v;
        }
        sum += g;
        size += std::abs(g);
      }
      EXPECT_NEAR(sum, 0, (d == DType::bf16 ? 4e-3 : 1e-6) * size);        // softmax minus one-hot sums to zero
      EXPECT_TRUE(std::isfinite(loss.token_loss.get(n)));
    }
  }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  Loss loss(DType::f32, 2, 0);
  loss.logits.fill(-3e4);
  for (int64_t n = 0; n < kN; n++) loss.logits.set(n * kV + 5, 3e4);
  loss.backward();
  EXPECT_EQ(loss.token_loss.get(3), 0);                    // target 5
  EXPECT_EQ(loss.token_loss.get(0), 6e4);
}

TEST(CrossEntropy, NanLogitGivesNanLoss) {
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (double bad : {std::nan(""), double(std::numeric_limits<float>::infinity())})
      for (int64_t v : {0, 7, 13, 20}) {                   // either shard, target or not
        Loss loss(d, 2, 0);
        loss.logits.set(3 * kV + v, bad);
        loss.backward();
        EXPECT_TRUE(std::isnan(loss.token_loss.get(3))) << name_of(d) << " logit " << v;
        EXPECT_TRUE(std::isfinite(loss.token_loss.get(4))) << "leaked into the next row";
      }
}

TEST(CrossEntropy, LossAloneLeavesTheLogits) {
  Loss loss(DType::f32, 1, 0);
  loss.forward(false);
  EXPECT_EQ(loss.shards[0].values(), loss.logits.values());
}

Results run(DType d, double softcap) {
  Loss loss(d, 2, softcap);
  loss.backward();
  return {record("token_loss", loss.token_loss), record("dlogits", loss.dlogits)};
}
TEST(CrossEntropy, Twins) {
  for (double softcap : {0.0, 5.0}) expect_twins([&](DType d) { return run(d, softcap); });
}
TEST(CrossEntropy, ThreadIndependent) { expect_thread_independent([](DType d) { return run(d, 5); }); }

TEST(CrossEntropy, Doors) {
  Stream dry(true);
  const Tensor logits = view(nullptr, DType::bf16, {4, 6}), stats = view(nullptr, DType::f32, {4, 3}),
               targets = view(nullptr, DType::i32, {4});
  const Tensor token_loss = view(nullptr, DType::f32, {4}), all = view(nullptr, DType::f32, {8, 3});
  cross_entropy_stats(dry, {.stats = stats, .logits = logits, .targets = targets, .vocab = 5});
  cross_entropy_gradient(dry, {.logits = logits, .token_loss = token_loss, .all_stats = all, .targets = targets, .vocab = 5});
  expect_refused({"stats f32 (3, 3)", "logits bf16 (4, 6)"},
                 [&] { cross_entropy_stats(dry, {.stats = rows(stats, 0, 3), .logits = logits, .targets = targets, .vocab = 5}); });
  expect_refused({"stats bf16 (4, 3)"}, [&] {
    cross_entropy_stats(dry, {.stats = view(nullptr, DType::bf16, {4, 3}), .logits = logits, .targets = targets, .vocab = 5});
  });
  expect_refused({"targets i32 (3)"},
                 [&] { cross_entropy_stats(dry, {.stats = stats, .logits = logits, .targets = rows(targets, 0, 3), .vocab = 5}); });
  expect_refused({"vocab 0"}, [&] { cross_entropy_stats(dry, {.stats = stats, .logits = logits, .targets = targets, .vocab = 0}); });
  const auto gradient = [&](Tensor loss, Tensor stats_of_all, Tensor t) {
    cross_entropy_gradient(dry, {.logits = logits, .token_loss = loss, .all_stats = stats_of_all, .targets = t, .vocab = 5});
  };
  expect_refused({"all_stats f32 (7, 3)", "4 rows"}, [&] { gradient(token_loss, rows(all, 0, 7), targets); });
  expect_refused({"all_stats f64 (8, 3)"}, [&] { gradient(token_loss, view(nullptr, DType::f64, {8, 3}), targets); });
  expect_refused({"token_loss bf16 (4)"}, [&] { gradient(view(nullptr, DType::bf16, {4}), all, targets); });
  expect_refused({"targets u16 (4)"}, [&] { gradient(token_loss, all, view(nullptr, DType::u16, {4})); });
}

}  // namespace
}  // namespace wyvern
