#include "data/counted_source.h"

#include "kernels/base/check.h"

namespace wyvern {

std::string grouped(int64_t n) {
  std::string out = std::to_string(n);
  for (int64_t i = int64_t(out.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) out.insert(size_t(i), 1, ',');
  return out;
}

CountedSource::CountedSource(int64_t T, uint64_t seed, uint64_t fingerprint) : T_(T), state_{seed, 0, 0, fingerprint} {
  if (T < 1) fail(kUsage, "a sequence length of {}: at least 1 is needed", T);
}

void CountedSource::enter(int64_t epoch) {
  if (entered_ == epoch) return;
  sequences_ = begin_epoch(epoch);
  CHECK(sequences_ > 0, "epoch {} has {} sequences", epoch, sequences_);
  entered_ = epoch;
}

TokenBatch CountedSource::next(int64_t sequences) {
  CHECK(sequences > 0, "{} sequences", sequences);
  TokenBatch out{std::vector<int32_t>(size_t(sequences * T_)), std::vector<int32_t>(size_t(sequences * T_))};
  for (int64_t row = 0; row < sequences; row++) {
    enter(state_.epoch);
    if (state_.position == sequences_) {
      enter(++state_.epoch);
      state_.position = 0;
    }
    fill(state_.position, out.tokens.data() + row * T_, out.targets.data() + row * T_);
    state_.position++;
  }
  return out;
}

void CountedSource::restore(const LoaderState& saved) {
  if (saved.fingerprint != state_.fingerprint)
    fail(kCorrupt,
         "the saved position in the data (epoch {}, sequence {}) belongs to other data: names, sizes or order of the shards, the sequence "
         "length or the order of reading changed (fingerprint {:016x}, now {:016x} for {})",
         saved.epoch, saved.position, saved.fingerprint, state_.fingerprint, summary());
  if (saved.epoch < 0 || saved.position < 0)
    fail(kCorrupt, "the saved position in the data is epoch {}, sequence {}", saved.epoch, saved.position);
  state_ = saved;
  entered_ = -1;                                                         // the seed may differ from the one of construction
  enter(state_.epoch);
  if (saved.position > sequences_)
    fail(kCorrupt, "the saved position in the data is sequence {} of an epoch of {}", saved.position, sequences_);
}

std::string CountedSource::describe() const {
  if (state_.epoch == 0 && state_.position == 0) return summary();
  std::string out = fmt::format("{}; next is epoch {}, sequence {}", summary(), state_.epoch, grouped(state_.position));
  if (entered_ == state_.epoch && state_.position < sequences_) out += ", " + place(state_.position);
  return out;
}

}  // namespace wyvern
