// Loader: windows of T tokens (targets one further), never across shards, the tail counted and dropped.
//   sequential       the shards in order, from their first tokens
//   shuffled         per epoch each shard starts at a random phase in [0, T) and the windows are permuted, so boundaries move
//   random_offsets   nanoGPT's draws with replacement
// A batch is a pure function of the state, which is global and small; it belongs into the checkpoint.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/token_store.h"

namespace wyvern {

enum class DataOrder : uint8_t { sequential, shuffled, random_offsets };

struct LoaderState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t position = 0;        // sequences handed out in this epoch (random_offsets: since the start)
  uint64_t fingerprint = 0;    // of the shard list, the order and T: what `position` counts
  bool operator==(const LoaderState&) const = default;
};

// B x T int32 rows. Targets are the next tokens; a source may mark targets as ignored by -1.
struct TokenBatch { std::vector<int32_t> tokens, targets; };

class TokenSource {            // where training tokens come from: shards or a synthetic task
 public:
  virtual ~TokenSource() = default;
  // The next `sequences` windows of the global stream; the state moves on. Crosses epochs when it must.
  virtual TokenBatch next(int64_t sequences) = 0;
  virtual LoaderState state() const = 0;
  virtual void restore(const LoaderState&) = 0;       // exact, seed included; Error(kCorrupt) when the shard list, T or order changed
  virtual int64_t sequences_per_epoch() const = 0;    // at phase 0; a shuffled epoch has up to one less per shard
  // "3 shards, 1,234,567 tokens, 1,205 windows of 1024 per epoch, 1,287 tokens dropped"; once under way, also what is next:
  // "; next is epoch 1, sequence 17, data/train_002.bin at token 52,224"
  virtual std::string describe() const = 0;
};

// vocab_size: every batch is checked against it (Error(kCorrupt) naming shard, offset and id). Too little data for one window,
// or shards of a larger vocabulary: Error at once.
std::unique_ptr<TokenSource> make_loader(TokenStore, int64_t T, DataOrder, uint64_t seed, int64_t vocab_size);
// kind uniform: ids uniform over the vocabulary, a pure function of (seed, sequence index); for timing and tests.
std::unique_ptr<TokenSource> make_synthetic(const std::string& kind, int64_t T, uint64_t seed, int64_t vocab_size);
// Evaluation windows: every token of the store once as a target (the first token of each shard has no context and is left out),
// non-overlapping, in order; the last window of a shard is padded with ignored targets (-1). One pass is sequences_per_epoch()
// sequences; the next pass begins anew. The store must outlive it.
std::unique_ptr<TokenSource> make_eval_windows(const TokenStore&, int64_t T, int64_t vocab_size);

}  // namespace wyvern
