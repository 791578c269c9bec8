// Byte-level BPE: a vocabulary (how bytes and merges make ids), the tokenizer that runs it, and the trainer that finds it.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/pretokenize.h"
#include "data/tokenizer.h"

namespace wyvern {

inline constexpr int64_t kMaxVocabulary = 65536;                // shards hold 16-bit ids
inline constexpr const char* kEndOfText = "<|endoftext|>";      // what decode() shows for the control id; text cannot produce it

struct BpeMerge {
  int32_t left, right, result;
};
struct BpeVocabulary {
  std::string pattern = kGpt2Pattern;
  std::array<int32_t, 256> byte_ids = {};                       // the id of each byte
  std::vector<BpeMerge> merges;                                 // by rank: the first that applies anywhere in a piece goes first
  std::vector<std::pair<int32_t, std::string>> added;           // ids that no text produces, and what decode() shows for them
  std::optional<int32_t> end_of_text;                           // one of `added`
};

// Error(kCorrupt) naming `name` unless every id from 0 up has exactly one meaning and every merge joins ids known before it.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary, const std::string& name);
// GPT-2's two files, in either naming: vocab.bpe or merges.txt, encoder.json or vocab.json.
BpeVocabulary read_bpe_files(const std::string& merges_path, const std::string& vocab_path);

// How often each piece occurs: what training needs of a corpus, fed document by document.
class PieceCounts {
 public:
  PieceCounts() : splitter_(kGpt2Pattern) {}
  void add(std::string_view text);
  const std::unordered_map<std::string, int64_t>& counts() const { return counts_; }

 private:
  Splitter splitter_;
  std::unordered_map<std::string, int64_t> counts_;
};
// Ids 0-255 are the bytes, then one per merge; the last is the end of text. Vocabulary sizes 257 to 65,536.
BpeVocabulary train_bpe_vocabulary(const PieceCounts&, int64_t vocab_size);

}  // namespace wyvern
