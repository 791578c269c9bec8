// What every token source shares: counting epochs and positions, so that state and restore are exact by construction. A
// kind only says how many sequences an epoch has and what the sequence at a position is: a pure function of
// (seed, epoch, position), which leaves nothing else to save.
#pragma once
#include <string>

#include "data/loader.h"
#include "kernels/base/philox.h"

namespace wyvern {

class CountedSource : public TokenSource {
 public:
  TokenBatch next(int64_t sequences) final;
  LoaderState state() const final { return state_; }
  void restore(const LoaderState&) final;
  std::string describe() const final;

 protected:
  CountedSource(int64_t T, uint64_t seed, uint64_t fingerprint);
  virtual int64_t begin_epoch(int64_t epoch) = 0;                        // number of sequences in it; called before the first fill
  virtual void fill(int64_t position, int32_t* tokens, int32_t* targets) const = 0;      // T of each
  virtual std::string summary() const = 0;                               // the data, for describe() and for messages
  virtual std::string place(int64_t position) const = 0;                 // what lies there: "train_000.bin at token 1,024"
  int64_t length() const { return T_; }
  uint64_t seed() const { return state_.seed; }

 private:
  void enter(int64_t epoch);
  int64_t T_;
  LoaderState state_;
  int64_t entered_ = -1, sequences_ = 0;                                 // the epoch begun last and its length
};

std::string grouped(int64_t);                                            // 1,234,567

// A whole number in [0, n) from 64 random bits (Lemire's multiplication; the bias is below n / 2^64).
inline int64_t below(int64_t n, uint64_t bits) { return int64_t((unsigned __int128)(bits) * uint64_t(n) >> 64); }

}  // namespace wyvern
