// Training: merge the most frequent neighbouring pair, again and again. Counts are kept per pair and corrected only in
// the words that hold the merged pair, so a merge costs what it changes. The result depends on the counts alone: ties
// go to the smallest pair of ids.
#include <queue>

#include "data/bpe.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace wyvern {
namespace {

using Pair = uint64_t;                                           // left << 32 | right: its order is that of the pair of ids
Pair pair_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};
struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

class Trainer {
 public:
  explicit Trainer(const PieceCounts& pieces) {
    for (const auto& [piece, count] : pieces.counts()) {
      if (piece.size() < 2) continue;
      Word word{{}, count};
      for (char byte : piece) word.symbols.push_back(uint8_t(byte));
      words_.push_back(std::move(word));
    }
    for (size_t w = 0; w < words_.size(); w++) {
      count_pairs(words_[w], +1);
      for (size_t i = 0; i + 1 < words_[w].symbols.size(); i++) note(pair_of(words_[w].symbols[i], words_[w].symbols[i + 1]), w);
    }
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  }

  // The best pair that occurs more than once becomes `result`; false when there is none.
  bool merge_best(int32_t result, BpeMerge* merge) {
    for (; !queue_.empty(); queue_.pop()) {
      const Candidate best = queue_.top();
      const auto now = counts_.find(best.pair);
      if (now == counts_.end() || now->second < 2) continue;
      if (now->second == best.count) break;
      queue_.push({now->second, best.pair});                     // went down since it was queued; the pop drops `best`, which is larger
    }
    if (queue_.empty()) return false;
    const Pair pair = queue_.top().pair;
    queue_.pop();
    *merge = {int32_t(pair >> 32), int32_t(uint32_t(pair)), result};
    const std::vector<uint32_t> holders = std::move(where_[pair]);
    where_.erase(pair);
    for (uint32_t w : holders) rewrite(w, *merge);
    counts_.erase(pair);
    for (Pair p : created_) queue_.push({counts_.at(p), p});     // only pairs with the new id can have gained
    created_.clear();
    return true;
  }

 private:
  void count_pairs(const Word& word, int64_t sign) {
    for (size_t i = 0; i + 1 < word.symbols.size(); i++) counts_[pair_of(word.symbols[i], word.symbols[i + 1])] += sign * word.count;
  }
  void note(Pair pair, size_t w) {
    auto& holders = where_[pair];
    if (holders.empty() || holders.back() != w) holders.push_back(uint32_t(w));
  }
  void rewrite(size_t w, const BpeMerge& merge) {
    Word& word = words_[w];
    count_pairs(word, -1);
    auto& s = word.symbols;
    size_t kept = 0;
    for (size_t i = 0; i < s.size(); kept++) {
      const bool here = i + 1 < s.size() && s[i] == merge.left && s[i + 1] == merge.right;
      s[kept] = here ? merge.result : s[i];
      i += here ? 2 : 1;
    }
    s.resize(kept);
    count_pairs(word, +1);
    for (size_t i = 0; i + 1 < s.size(); i++) {
      if (s[i] != merge.result && s[i + 1] != merge.result) continue;
      const Pair pair = pair_of(s[i], s[i + 1]);
      if (!where_.contains(pair)) created_.push_back(pair);
      note(pair, w);
    }
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t> counts_;
  std::unordered_map<Pair, std::vector<uint32_t>> where_;        // words that hold the pair, or once did
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> created_;
};

}  // namespace

void PieceCounts::add(std::string_view text) {
  Splitter::Pieces pieces(splitter_, text);
  for (std::string_view piece; pieces.next(&piece);) counts_[std::string(piece)]++;
}

BpeVocabulary train_bpe_vocabulary(const PieceCounts& pieces, int64_t vocab_size) {
  if (vocab_size < 257 || vocab_size > kMaxVocabulary)
    fail(kUsage, "a BPE vocabulary of {} is not possible: 256 bytes and the end of text need 257, shards hold up to {}", vocab_size,
         kMaxVocabulary);
  BpeVocabulary out;
  for (int b = 0; b < 256; b++) out.byte_ids[size_t(b)] = b;
  Trainer trainer(pieces);
  const auto last = int32_t(vocab_size - 1);
  for (int32_t id = 256; id < last; id++) {
    BpeMerge merge;
    if (!trainer.merge_best(id, &merge))
      fail(kUsage, "the text is too small for a BPE vocabulary of {}: no pair of tokens occurs twice any more; ask for at most {}",
           vocab_size, id + 1);
    out.merges.push_back(merge);
  }
  out.added = {{last, kEndOfText}};
  out.end_of_text = last;
  return out;
}

std::unique_ptr<Tokenizer> train_bpe(std::string_view corpus, int64_t vocab_size) {
  PieceCounts pieces;
  pieces.add(corpus);
  return make_bpe_tokenizer(train_bpe_vocabulary(pieces, vocab_size), "trained");
}

}  // namespace wyvern
