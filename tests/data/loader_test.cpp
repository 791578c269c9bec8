#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

constexpr int64_t kVocab = 65536;

// Ids count up through all shards, so that a token is its own position in the one long stream.
TokenStore counting_store(const TempFolder& folder, const std::vector<int64_t>& sizes, const std::string& prefix = "s") {
  int32_t id = 0;
  for (size_t i = 0; i < sizes.size(); i++) {
    std::vector<int32_t> ids(size_t(sizes[i]));
    std::iota(ids.begin(), ids.end(), id);
    id += int32_t(sizes[i]);
    write_shard(folder / fmt::format("{}_{:03}.bin", prefix, i), ids, "counting", kVocab, 1, sizes[i]);
  }
  return TokenStore::open(folder / (prefix + "_*.bin"));
}
TokenStore counting_store(int64_t size) {
  std::vector<uint16_t> ids(static_cast<size_t>(size));
  std::iota(ids.begin(), ids.end(), uint16_t(0));
  return TokenStore::from_tokens(ids, "memory");
}

// The first token of each row; every row must be a run of neighbours with targets one further.
std::vector<int32_t> starts(const TokenBatch& batch, int64_t T) {
  std::vector<int32_t> out;
  EXPECT_EQ(batch.tokens.size(), batch.targets.size());
  for (size_t i = 0; i < batch.tokens.size(); i++) {
    if (i % size_t(T) == 0) out.push_back(batch.tokens[i]);
    EXPECT_EQ(batch.tokens[i], out.back() + int32_t(i % size_t(T)));
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
  }
  return out;
}
std::vector<int32_t> draw(TokenSource& source, int64_t count, int64_t T) { return starts(source.next(count), T); }

TEST(Loader, S03_ShardBoundaries) {
  constexpr int64_t T = 8;
  const std::vector<std::vector<int64_t>> lists = {{T, T + 1, 2 * T}, {2 * T, 2 * T + 1, 3 * T}, {2 * T + 1, T, T + 1}, {T + 1}};
  for (const auto& sizes : lists) {
    TempFolder folder;
    const auto source = make_loader(counting_store(folder, sizes), T, DataOrder::sequential, 1, kVocab);
    std::vector<int32_t> want;
    int32_t first = 0;
    for (int64_t size : sizes) {
      for (int64_t at = 0; at + T + 1 <= size; at += T) want.push_back(first + int32_t(at));
      first += int32_t(size);
    }
    ASSERT_EQ(source->sequences_per_epoch(), int64_t(want.size()));
    for (int epoch = 0; epoch < 2; epoch++)
      for (int32_t start : want) {
        EXPECT_EQ(draw(*source, 1, T), std::vector<int32_t>{start});
        EXPECT_EQ(source->state().epoch, epoch);
      }
  }
}

TEST(Loader, S04_TooLittleDataIsRefusedAtOnce) {
  TempFolder folder;
  counting_store(folder, {5, 8});
  for (DataOrder order : {DataOrder::sequential, DataOrder::shuffled, DataOrder::random_offsets}) {
    expect_error(kUsage, {"sequence of 8", "needs 9", "has 8", "s_000.bin"},
                 [&] { make_loader(TokenStore::open(folder / "s_*.bin"), 8, order, 1, kVocab); });
    EXPECT_EQ(draw(*make_loader(TokenStore::open(folder / "s_*.bin"), 7, order, 1, kVocab), 3, 7), (std::vector<int32_t>{5, 5, 5}));
  }
  expect_error(kUsage, {"length of 0"}, [&] { make_loader(counting_store(9), 0, DataOrder::shuffled, 1, kVocab); });
}

// In every epoch each shard gives one unbroken run of windows, at a phase of its own, in a mixed order.
TEST(Loader, ShuffledEpochsCoverTheShards) {
  TempFolder folder;
  constexpr int64_t T = 16, kEpochs = 200;
  const std::vector<int64_t> sizes = {333, 17, 20, 16, 800};                         // 20, 1, 1, 0 and 49 windows
  const auto source = make_loader(counting_store(folder, sizes), T, DataOrder::shuffled, 7, kVocab);
  EXPECT_EQ(source->sequences_per_epoch(), 71);
  std::vector<std::vector<int32_t>> epochs(kEpochs);
  for (;;) {
    const int32_t start = draw(*source, 1, T)[0];
    const int64_t epoch = source->state().epoch;                                     // moves on with the first draw of an epoch
    if (epoch == kEpochs) break;
    epochs[size_t(epoch)].push_back(start);
  }
  std::vector<std::set<int32_t>> phases(sizes.size());
  for (const std::vector<int32_t>& order : epochs) {
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    size_t counted = 0;
    int32_t first = 0;
    for (size_t i = 0; i < sizes.size(); first += int32_t(sizes[i]), i++) {
      std::vector<int32_t> offsets;
      for (int32_t start : order)
        if (start >= first && start < first + sizes[i]) offsets.push_back(start - first);
      counted += offsets.size();
      if (offsets.empty()) continue;
      std::sort(offsets.begin(), offsets.end());
      phases[i].insert(offsets[0]);
      EXPECT_LT(sizes[i] - (offsets.back() + T + 1), T);                             // no further window would fit
      for (size_t k = 0; k < offsets.size(); k++) EXPECT_EQ(offsets[k], offsets[0] + int32_t(k) * T);
    }
    EXPECT_EQ(counted, order.size());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  const auto upto = [](int32_t n) {
    std::set<int32_t> out;
    for (int32_t i = 0; i < n; i++) out.insert(i);
    return out;
  };
  EXPECT_EQ(phases[0], upto(16));
  EXPECT_EQ(phases[1], upto(1));                                                     // 17 tokens: one window, no slack
  EXPECT_EQ(phases[2], upto(4));                                                     // 20 tokens: one window, three left over
  EXPECT_EQ(phases[3], upto(0));
  EXPECT_EQ(phases[4], upto(16));
}

TEST(Loader, ShuffledOrderIsFair) {
  std::map<int64_t, std::map<int64_t, int>> seen;                                    // position in the epoch -> window -> count
  constexpr int kSeeds = 4000;
  constexpr int64_t T = 4, kWindows = 5;
  for (uint64_t seed = 0; seed < kSeeds; seed++) {
    const auto source = make_loader(counting_store(kWindows * T + T), T, DataOrder::shuffled, seed, kVocab);
    const std::vector<int32_t> order = draw(*source, kWindows, T);
    for (size_t i = 0; i < order.size(); i++) seen[int64_t(i)][order[i] / T]++;
  }
  const double mean = double(kSeeds) / kWindows, sigma = std::sqrt(mean * (1 - 1.0 / kWindows));
  for (const auto& [position, counts] : seen) {
    ASSERT_EQ(counts.size(), size_t(kWindows));
    for (const auto& [window, count] : counts) EXPECT_NEAR(count, mean, 5 * sigma) << position << " " << window;
  }
}

// Stop anywhere, restore into a new source (even one of another seed): the stream goes on as if it had not stopped.
void expect_exact_resume(const std::function<std::unique_ptr<TokenSource>(uint64_t seed)>& make, int64_t steps, int64_t batch) {
  const auto straight = make(3);
  std::vector<TokenBatch> want;
  std::vector<LoaderState> states;
  for (int64_t i = 0; i < steps; i++) {
    states.push_back(straight->state());
    want.push_back(straight->next(batch));
  }
  for (size_t stop = 0; stop < states.size(); stop++) {
    const auto resumed = make(99);
    resumed->restore(states[stop]);
    EXPECT_EQ(resumed->state(), states[stop]);
    for (size_t i = stop; i < want.size(); i++) {
      const TokenBatch got = resumed->next(batch);
      ASSERT_EQ(got.tokens, want[i].tokens) << "stopped at " << stop << ", batch " << i;
      ASSERT_EQ(got.targets, want[i].targets);
    }
    EXPECT_EQ(resumed->state(), straight->state());
  }
}

TEST(Loader, S06_ResumeContinuesTheStream) {
  TempFolder folder;
  counting_store(folder, {100, 37, 64});
  for (DataOrder order : {DataOrder::sequential, DataOrder::shuffled, DataOrder::random_offsets})
    expect_exact_resume([&](uint64_t seed) { return make_loader(TokenStore::open(folder / "s_*.bin"), 8, order, seed, kVocab); }, 20, 3);
  expect_exact_resume([](uint64_t seed) { return make_synthetic("uniform", 8, seed, 100); }, 5, 3);
}

TEST(Loader, S06_TheDescriptionNamesThePlace) {
  TempFolder folder;
  const auto source = make_loader(counting_store(folder, {100, 1200}), 8, DataOrder::sequential, 1, kVocab);
  EXPECT_EQ(source->describe(), "2 shards, 1,300 tokens, 161 windows of 8 per epoch, 10 tokens dropped");
  source->next(14);
  EXPECT_NE(source->describe().find("; next is epoch 0, sequence 14, "), std::string::npos) << source->describe();
  EXPECT_NE(source->describe().find("s_001.bin at token 16"), std::string::npos) << source->describe();
}

// 40 sequences, batches of 4: 15 steps end in the middle of the second epoch.
TEST(Loader, S07_ResumeInTheSecondEpoch) {
  constexpr int64_t T = 5, kSequences = 40;
  const auto make = [&] { return make_loader(counting_store(kSequences * T + 1), T, DataOrder::sequential, 1, kVocab); };
  const auto shuffled = [&] { return make_loader(counting_store(kSequences * T + T), T, DataOrder::shuffled, 1, kVocab); };
  for (const auto& source : {make(), shuffled()}) {
    for (int epoch = 0; epoch < 3; epoch++) {
      const std::vector<int32_t> ids = draw(*source, kSequences, T);
      EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), size_t(kSequences));          // each sample once
      EXPECT_EQ(source->state().epoch, epoch);
    }
  }
  const auto straight = shuffled(), stopped = shuffled(), resumed = shuffled();
  const auto all = draw(*straight, 30 * 4, T);
  stopped->next(15 * 4);
  EXPECT_EQ(stopped->state().epoch, 1);
  resumed->restore(stopped->state());
  EXPECT_EQ(draw(*resumed, 15 * 4, T), std::vector<int32_t>(all.begin() + 60, all.end()));
  EXPECT_NE(std::vector<int32_t>(all.begin(), all.begin() + 40), std::vector<int32_t>(all.begin() + 40, all.begin() + 80));
}

TEST(Loader, S08_RandomDrawsGoOnAfterAResume) {
  const auto make = [] { return make_loader(counting_store(60000), 8, DataOrder::random_offsets, 5, kVocab); };
  const std::vector<int32_t> straight = draw(*make(), 15, 8);
  std::vector<int32_t> pieces;
  LoaderState state = make()->state();
  for (int part = 0; part < 3; part++) {
    const auto source = make();
    source->restore(state);
    for (int32_t start : draw(*source, 5, 8)) pieces.push_back(start);
    state = source->state();
  }
  EXPECT_EQ(pieces, straight);
  EXPECT_EQ(std::set<int32_t>(pieces.begin(), pieces.end()).size(), 15u);
}

TEST(Loader, RandomDrawsAreUniformOverAllPlaces) {
  TempFolder folder;
  constexpr int64_t T = 4;
  const auto source = make_loader(counting_store(folder, {9, 4, 7}), T, DataOrder::random_offsets, 5, kVocab);
  std::map<int32_t, int> counts;
  for (int32_t start : draw(*source, 8000, T)) counts[start]++;
  std::vector<int32_t> places;
  for (const auto& [start, count] : counts) {
    places.push_back(start);
    EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000 * 7.0 / 8));
  }
  EXPECT_EQ(places, (std::vector<int32_t>{0, 1, 2, 3, 4, 13, 14, 15}));              // nanoGPT: size - T starts per shard
}

TEST(Loader, S09_AnotherListIsRefused) {
  TempFolder folder;
  const auto source = make_loader(counting_store(folder, {100, 50}), 8, DataOrder::shuffled, 1, kVocab);
  source->next(5);
  const auto refuse = [&](TokenStore store, int64_t T, DataOrder order) {
    const auto other = make_loader(std::move(store), T, order, 1, kVocab);
    expect_error(kCorrupt, {"saved position", "sequence 5", "other data"}, [&] { other->restore(source->state()); });
  };
  refuse(counting_store(folder, {100}, "fewer"), 8, DataOrder::shuffled);
  refuse(counting_store(folder, {100, 50, 9}), 8, DataOrder::shuffled);
  std::filesystem::remove(folder / "s_002.bin");
  refuse(TokenStore::open(folder / "s_*.bin"), 9, DataOrder::shuffled);
  refuse(TokenStore::open(folder / "s_*.bin"), 8, DataOrder::sequential);
  make_loader(TokenStore::open(folder / "s_*.bin"), 8, DataOrder::shuffled, 1, kVocab)->restore(source->state());
  LoaderState beyond = source->state();
  beyond.position = 1000;
  expect_error(kCorrupt, {"1000"}, [&] { source->restore(beyond); });
  beyond.position = -1;
  expect_error(kCorrupt, {"-1"}, [&] { source->restore(beyond); });
}

TEST(Loader, IdsBeyondTheVocabularyAreNamed) {
  const auto store = [] { return TokenStore::from_tokens({1, 2, 3, 4, 5, 99, 7, 8, 9}, "bad.bin"); };
  const auto source = make_loader(store(), 4, DataOrder::sequential, 1, 50);
  source->next(1);
  expect_error(kCorrupt, {"bad.bin", "token 5 is 99", "50"}, [&] { source->next(1); });
  const TokenStore kept = store();
  expect_error(kCorrupt, {"token 5 is 99"}, [&] { make_eval_windows(kept, 8, 99)->next(1); });
  TempFolder folder;
  expect_error(kUsage, {"s_000.bin", "65536", "100"}, [&] { make_loader(counting_store(folder, {9}), 4, DataOrder::shuffled, 1, 100); });
}

// A token near the end of 3.2e9: the loader's own arithmetic on top of the store's.
TEST(Loader, S05_OffsetsBeyond32Bits) {
  TempFolder folder;
  const int32_t tokens = 1'600'000'000, header[256] = {20240520, 1, tokens};
  for (const char* name : {"a.bin", "b.bin"}) {
    folder.write(name, std::string(reinterpret_cast<const char*>(header), sizeof header));
    std::filesystem::resize_file(folder / name, 1024 + 2 * uintmax_t(tokens));
  }
  std::fstream file(folder / "b.bin", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(1024 + 2 * int64_t(1'300'000'000));                                     // token 2.9e9 of the list
  file.write("\x07\x00\x08\x00", 4);
  file.close();
  const auto source = make_loader(TokenStore::open(folder / "*.bin"), 1000, DataOrder::sequential, 1, 50);
  EXPECT_EQ(source->sequences_per_epoch(), 2 * 1'599'999);
  LoaderState state = source->state();
  state.position = 1'599'999 + 1'300'000;
  source->restore(state);
  const TokenBatch batch = source->next(1);
  EXPECT_EQ(batch.tokens[0], 7);
  EXPECT_EQ(batch.targets[0], 8);
  EXPECT_EQ(batch.targets[1], 0);
  EXPECT_NE(source->describe().find("3,200,000,000 tokens"), std::string::npos);
}

TEST(EvalWindows, EveryTokenIsATargetOnce) {
  TempFolder folder;
  constexpr int64_t T = 8;
  const std::vector<int64_t> sizes = {1, 2, T, T + 1, T + 2, 3 * T + 5};
  const TokenStore store = counting_store(folder, sizes);
  const auto source = make_eval_windows(store, T, kVocab);
  ASSERT_EQ(source->sequences_per_epoch(), 0 + 1 + 1 + 1 + 2 + 4);
  for (int pass = 0; pass < 2; pass++) {
    const TokenBatch batch = source->next(source->sequences_per_epoch());
    std::vector<int32_t> targets, want;
    for (size_t i = 0; i < batch.targets.size(); i++) {
      if (batch.targets[i] < 0) continue;
      targets.push_back(batch.targets[i]);
      EXPECT_EQ(batch.tokens[i], batch.targets[i] - 1);
    }
    int32_t first = 0;
    for (int64_t size : sizes) {
      for (int64_t i = 1; i < size; i++) want.push_back(first + int32_t(i));
      first += int32_t(size);
    }
    EXPECT_EQ(targets, want);
  }
  const TokenStore one = TokenStore::from_tokens({3}, "one");
  expect_error(kUsage, {"nothing to evaluate"}, [&] { make_eval_windows(one, T, kVocab); });
}

// Padding is by position: a real 0 counts, whatever id fills the rest of the window.
TEST(EvalWindows, S12_PaddingIsNotAValue) {
  const TokenStore store = TokenStore::from_tokens({5, 0, 0, 6}, "zeros");
  const TokenBatch batch = make_eval_windows(store, 8, 10)->next(1);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{0, 0, 6, -1, -1, -1, -1, -1}));
  EXPECT_EQ(std::vector<int32_t>(batch.tokens.begin(), batch.tokens.begin() + 3), (std::vector<int32_t>{5, 0, 0}));
}

TEST(Synthetic, UniformIsAPureFunctionOfSeedAndPosition) {
  const auto source = make_synthetic("uniform", 16, 1, 50257);
  const TokenBatch all = source->next(500);
  const auto again = make_synthetic("uniform", 16, 1, 50257);
  again->next(7);
  EXPECT_EQ(again->next(1).tokens, std::vector<int32_t>(all.tokens.begin() + 7 * 16, all.tokens.begin() + 8 * 16));
  EXPECT_NE(make_synthetic("uniform", 16, 2, 50257)->next(500).tokens, all.tokens);
  const double mean = std::accumulate(all.tokens.begin(), all.tokens.end(), 0.0) / double(all.tokens.size());
  EXPECT_NEAR(mean, 50256 / 2.0, 5 * 50257 / std::sqrt(12.0 * 8000));
  EXPECT_LT(*std::max_element(all.tokens.begin(), all.tokens.end()), 50257);
  EXPECT_GE(*std::min_element(all.tokens.begin(), all.tokens.end()), 0);
  for (size_t i = 0; i + 1 < 16; i++) EXPECT_EQ(all.targets[i], all.tokens[i + 1]);
  expect_error(kUsage, {"zipf", "uniform"}, [] { make_synthetic("zipf", 8, 1, 10); });
}

}  // namespace
}  // namespace wyvern
