#include "data/loader.h"

#include <algorithm>
#include <filesystem>

#include "data/counted_source.h"
#include "kernels/base/check.h"

namespace wyvern {
namespace {

// A permutation of [0, n) that is computed, not stored: a Feistel network on the next power of four, walked until it
// lands inside (fewer than four steps on average).
class Permutation {
 public:
  Permutation(uint64_t key, int64_t n) : key_(key), n_(uint64_t(n)) {
    while ((uint64_t(1) << (2 * half_)) < n_) half_++;
  }
  int64_t operator()(int64_t i) const {
    auto x = uint64_t(i);
    do x = once(x);
    while (x >= n_);
    return int64_t(x);
  }

 private:
  uint64_t once(uint64_t x) const {
    constexpr uint64_t kRounds = 8;
    const uint64_t mask = (uint64_t(1) << half_) - 1;
    uint64_t left = x >> half_, right = x & mask;
    for (uint64_t round = 0; round < kRounds; round++) {
      const uint64_t f = mix(mix(key_, round), right) & mask;
      left = std::exchange(right, left ^ f);
    }
    return left << half_ | right;
  }
  uint64_t key_, n_;
  int half_ = 0;
};

// Windows over the shards of a store. A window at (shard, offset) reads T + 1 tokens: T inputs and the targets one further.
class ShardSource : public CountedSource {
 protected:
  struct Place { int64_t shard, offset; };

  ShardSource(const TokenStore& store, int64_t T, uint64_t seed, int64_t vocab_size, std::string_view order)
      : CountedSource(T, seed, mix(mix(store.fingerprint(), order), uint64_t(T))), vocab_size_(vocab_size) {
    for (const ShardInfo& shard : store.shards())
      if (shard.vocab_size && *shard.vocab_size > vocab_size)
        fail(kUsage, "{}: made with a vocabulary of {} ({}), the model has {}; use the matching tokenizer or raise model.vocab_size",
             shard.path, *shard.vocab_size, shard.tokenizer.value_or("?"), vocab_size);
  }
  virtual const TokenStore& store() const = 0;
  virtual Place locate(int64_t position) const = 0;

  int64_t tokens_of(size_t shard) const { return store().shards()[shard].tokens; }
  int64_t windows_of(size_t shard) const { return (tokens_of(shard) - 1) / length(); }   // at phase 0
  std::string place(int64_t position) const override {
    const Place at = locate(position);
    return fmt::format("{} at token {}", store().shards()[size_t(at.shard)].path, grouped(at.offset));
  }

  // `count` tokens from a place, each checked against the vocabulary.
  void read(Place at, int64_t count, int32_t* out) const {
    store().read(at.shard, at.offset, count, out);
    const int32_t* bad = std::find_if(out, out + count, [this](int32_t id) { return id >= vocab_size_; });
    if (bad != out + count)
      fail(kCorrupt, "{}: token {} is {}, outside the vocabulary of {}; do tokenizer and data belong together?",
           store().shards()[size_t(at.shard)].path, grouped(at.offset + (bad - out)), *bad, vocab_size_);
  }
  void fill(int64_t position, int32_t* tokens, int32_t* targets) const override {
    const Place at = locate(position);
    read(at, length(), tokens);
    std::copy(tokens + 1, tokens + length(), targets);
    read({at.shard, at.offset + length()}, 1, targets + length() - 1);
  }

 private:
  int64_t vocab_size_;
};

// The training orders: all of them drop what does not fill a window.
class TrainSource : public ShardSource {
 public:
  TrainSource(TokenStore store, int64_t T, uint64_t seed, int64_t vocab_size, std::string_view order)
      : ShardSource(store, T, seed, vocab_size, order), store_(std::move(store)) {
    int64_t longest = 0;
    for (const ShardInfo& shard : store_.shards()) {
      const int64_t windows = (shard.tokens - 1) / T;
      windows_ += windows;
      used_ += windows > 0 ? windows * T + 1 : 0;
      short_shards_ += windows == 0;
      longest = std::max(longest, shard.tokens);
    }
    if (windows_ == 0)
      fail(kUsage,
           "too little data: a sequence of {} needs {} tokens in one shard, the longest of {} ({}, ...) has {}; shorten it or add text",
           T, T + 1, store_.shards().size(), store_.shards()[0].path, longest);
  }
  int64_t sequences_per_epoch() const override { return windows_; }

 protected:
  const TokenStore& store() const override { return store_; }
  std::string summary() const override {
    const size_t shards = store_.shards().size();
    std::string out = fmt::format("{} shard{}, {} tokens, {} windows of {} per epoch, {} tokens dropped", shards, shards == 1 ? "" : "s",
                                  grouped(store_.total_tokens()), grouped(windows_), length(), grouped(store_.total_tokens() - used_));
    if (short_shards_) out += fmt::format(" ({} of the shards shorter than a window)", short_shards_);
    return out;
  }

 private:
  TokenStore store_;
  int64_t windows_ = 0, used_ = 0, short_shards_ = 0;
};

// sequential: the shards in order, from their first token. shuffled: in each epoch every shard starts at another phase, and
// the windows come in another order; a shard of one window keeps it (the phase stays within what is left over).
class EpochSource : public TrainSource {
 public:
  EpochSource(TokenStore store, int64_t T, uint64_t seed, int64_t vocab_size, bool shuffled)
      : TrainSource(std::move(store), T, seed, vocab_size, shuffled ? "shuffled" : "sequential"), shuffled_(shuffled), permutation_(0, 1) {}

 private:
  int64_t begin_epoch(int64_t epoch) override {
    const uint64_t key = mix(mix(mix(uint64_t(0), seed()), "epoch"), uint64_t(epoch));
    int64_t total = 0;
    phases_.clear();
    ends_.clear();
    for (size_t i = 0; i < store().shards().size(); i++) {
      const int64_t windows = windows_of(i), left_over = (tokens_of(i) - 1) % length();
      const int64_t choices = !shuffled_ || windows == 0 ? 1 : windows == 1 ? left_over + 1 : length();
      const int64_t phase = below(choices, mix(mix(key, "phase"), uint64_t(i)));
      phases_.push_back(phase);
      ends_.push_back(total += windows - (phase > left_over));
    }
    permutation_ = Permutation(mix(key, "permutation"), total);
    return total;
  }
  Place locate(int64_t position) const override {
    const int64_t window = shuffled_ ? permutation_(position) : position;
    const auto shard = std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin();
    const int64_t first = shard > 0 ? ends_[size_t(shard) - 1] : 0;
    return {shard, phases_[size_t(shard)] + (window - first) * length()};
  }
  bool shuffled_;
  Permutation permutation_;
  std::vector<int64_t> phases_, ends_;         // of each shard: its first token, and the number of windows up to its end
};

// nanoGPT's: every draw is uniform over all places where a window fits. An epoch never ends.
class RandomSource : public TrainSource {
 public:
  RandomSource(TokenStore tokens, int64_t T, uint64_t seed, int64_t vocab_size)
      : TrainSource(std::move(tokens), T, seed, vocab_size, "random_offsets") {
    int64_t total = 0;
    for (const ShardInfo& shard : store().shards()) ends_.push_back(total += std::max<int64_t>(0, shard.tokens - T));
  }

 private:
  int64_t begin_epoch(int64_t) override { return INT64_MAX; }
  Place locate(int64_t position) const override {
    const uint64_t bits = mix(mix(mix(uint64_t(0), seed()), "random_offsets"), uint64_t(position));
    const int64_t start = below(ends_.back(), bits);
    const auto shard = std::upper_bound(ends_.begin(), ends_.end(), start) - ends_.begin();
    return {shard, start - (shard > 0 ? ends_[size_t(shard) - 1] : 0)};
  }
  std::vector<int64_t> ends_;
};

// Every token of a shard but its first is a target once; the last window of a shard is filled up with ignored targets.
class EvalSource : public ShardSource {
 public:
  EvalSource(const TokenStore& store, int64_t T, int64_t vocab_size) : ShardSource(store, T, 0, vocab_size, "eval"), store_(store) {
    int64_t total = 0;
    for (const ShardInfo& shard : store.shards()) ends_.push_back(total += (shard.tokens - 1 + T - 1) / T);
    if (total == 0) fail(kUsage, "nothing to evaluate: no shard of {} holds two tokens", store.shards().size());
  }
  int64_t sequences_per_epoch() const override { return ends_.back(); }

 private:
  const TokenStore& store() const override { return store_; }
  int64_t begin_epoch(int64_t) override { return ends_.back(); }
  Place locate(int64_t position) const override {
    const auto shard = std::upper_bound(ends_.begin(), ends_.end(), position) - ends_.begin();
    return {shard, (position - (shard > 0 ? ends_[size_t(shard) - 1] : 0)) * length()};
  }
  void fill(int64_t position, int32_t* tokens, int32_t* targets) const override {
    const Place at = locate(position);
    const int64_t count = std::min(length(), tokens_of(size_t(at.shard)) - 1 - at.offset);
    read(at, count, tokens);
    read({at.shard, at.offset + 1}, count, targets);
    std::fill(tokens + count, tokens + length(), 0);                     // any id: padding is marked by position, never by value
    std::fill(targets + count, targets + length(), -1);
  }
  std::string summary() const override {
    const auto shards = int64_t(store_.shards().size());
    const int64_t targets = store_.total_tokens() - shards;
    return fmt::format("{} shard{}, {} targets in {} windows of {}", shards, shards == 1 ? "" : "s", grouped(targets),
                       grouped(ends_.back()), length());
  }
  const TokenStore& store_;
  std::vector<int64_t> ends_;
};

}  // namespace

std::unique_ptr<TokenSource> make_loader(TokenStore store, int64_t T, DataOrder order, uint64_t seed, int64_t vocab_size) {
  if (order == DataOrder::random_offsets) return std::make_unique<RandomSource>(std::move(store), T, seed, vocab_size);
  return std::make_unique<EpochSource>(std::move(store), T, seed, vocab_size, order == DataOrder::shuffled);
}

std::unique_ptr<TokenSource> make_eval_windows(const TokenStore& store, int64_t T, int64_t vocab_size) {
  return std::make_unique<EvalSource>(store, T, vocab_size);
}

}  // namespace wyvern
