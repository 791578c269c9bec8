// Made-up tokens for timing and for tests: no files, no tokenizer.
#include "data/counted_source.h"
#include "kernels/base/check.h"

namespace wyvern {
namespace {

class UniformSource : public CountedSource {
 public:
  UniformSource(int64_t T, uint64_t seed, int64_t vocab_size)
      : CountedSource(T, seed, mix(mix(mix(uint64_t(0), "uniform"), uint64_t(T)), uint64_t(vocab_size))), vocab_size_(vocab_size) {
    if (vocab_size < 1 || vocab_size > INT32_MAX) fail(kUsage, "synthetic data: a vocabulary of {} is not possible", vocab_size);
  }
  int64_t sequences_per_epoch() const override { return INT64_MAX; }

 private:
  int64_t begin_epoch(int64_t) override { return INT64_MAX; }
  void fill(int64_t position, int32_t* tokens, int32_t* targets) const override {
    for (int64_t t = 0; t <= length(); t++) {
      const auto id = int32_t(below(vocab_size_, mix(mix(mix(seed(), "uniform"), uint64_t(position)), uint64_t(t))));
      if (t < length()) tokens[t] = id;
      if (t > 0) targets[t - 1] = id;
    }
  }
  std::string summary() const override {
    return fmt::format("synthetic: uniform ids below {}, sequences of {}", grouped(vocab_size_), length());
  }
  std::string place(int64_t) const override { return "made up"; }
  int64_t vocab_size_;
};

}  // namespace

std::unique_ptr<TokenSource> make_synthetic(const std::string& kind, int64_t T, uint64_t seed, int64_t vocab_size) {
  if (kind == "uniform") return std::make_unique<UniformSource>(T, seed, vocab_size);
  fail(kUsage, "data.synthetic.kind: unknown '{}' (known: uniform)", kind);
}

}  // namespace wyvern
