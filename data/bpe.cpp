#include "data/bpe.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <queue>

#include "kernels/base/check.h"

namespace wyvern {
namespace {

constexpr uint64_t kGpt2Hash = 0xc7cc06b241c3ca07;             // content_hash of GPT-2's vocab.bpe + encoder.json
constexpr size_t kMaxTokenBytes = size_t(1) << 26;               // over all ids: a broken file could double the length with every merge
constexpr size_t kShortPiece = 32;                               // symbols; longer pieces go through a heap
constexpr size_t kCachedPiece = 64, kCacheBytes = 32 << 20;      // bytes of one piece and of all cached text and ids

// (left, right) -> rank and result: open addressing, at most half full.
class MergeTable {
 public:
  struct Slot { uint64_t key = kEmpty; int32_t rank = INT32_MAX, result = -1; };

  explicit MergeTable(const std::vector<BpeMerge>& merges) {
    while ((size_t(1) << bits_) < 2 * merges.size() + 2) bits_++;
    slots_.resize(size_t(1) << bits_);
    for (size_t rank = 0; rank < merges.size(); rank++) {
      Slot& slot = slots_[find(key_of(merges[rank].left, merges[rank].right))];
      if (slot.key != kEmpty) continue;                          // a repeated merge: the first rank counts
      slot = {key_of(merges[rank].left, merges[rank].right), int32_t(rank), merges[rank].result};
    }
  }
  const Slot& operator()(int32_t left, int32_t right) const { return slots_[find(key_of(left, right))]; }   // rank INT32_MAX: none

 private:
  static constexpr uint64_t kEmpty = ~uint64_t(0);
  static uint64_t key_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
  size_t find(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t i = size_t(key * 0x9E3779B97F4A7C15ull >> (64 - bits_));
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }
  int bits_ = 4;
  std::vector<Slot> slots_;
};

// Pieces seen before and their ids. Natural text repeats itself: nearly every piece of prose is a hit.
class PieceCache {
 public:
  PieceCache() { clear(); }
  bool append(std::string_view piece, uint64_t hash, std::vector<int32_t>* out) const {
    const Entry& entry = entries_[find(piece, hash)];
    if (!entry.length) return false;
    out->insert(out->end(), ids_.begin() + entry.ids_at, ids_.begin() + entry.ids_at + entry.num_ids);
    return true;
  }
  void insert(std::string_view piece, uint64_t hash, const int32_t* ids, size_t num_ids) {
    if (text_.size() + 4 * ids_.size() > kCacheBytes) clear();
    if (2 * (used_ + 1) > entries_.size()) grow();
    entries_[find(piece, hash)] = {hash, uint32_t(text_.size()), uint32_t(piece.size()), uint32_t(ids_.size()), uint32_t(num_ids)};
    text_ += piece;
    ids_.insert(ids_.end(), ids, ids + num_ids);
    used_++;
  }

 private:
  struct Entry { uint64_t hash = 0; uint32_t text_at = 0, length = 0, ids_at = 0, num_ids = 0; };
  size_t find(std::string_view piece, uint64_t hash) const {
    const size_t mask = entries_.size() - 1;
    size_t i = size_t(hash) & mask;
    for (; entries_[i].length; i = (i + 1) & mask) {
      const Entry& e = entries_[i];
      if (e.hash == hash && e.length == piece.size() && std::memcmp(text_.data() + e.text_at, piece.data(), piece.size()) == 0) break;
    }
    return i;
  }
  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& e : old)
      if (e.length) entries_[find(std::string_view(text_).substr(e.text_at, e.length), e.hash)] = e;
  }
  void clear() {
    entries_.assign(1 << 12, {});
    text_.clear();
    ids_.clear();
    used_ = 0;
  }
  std::vector<Entry> entries_;
  std::string text_;
  std::vector<int32_t> ids_;
  size_t used_ = 0;
};

// Merges in place, one pass over the piece per merge.
void merge_short(const MergeTable& table, std::vector<int32_t>* symbols) {
  auto& s = *symbols;
  while (s.size() > 1) {
    MergeTable::Slot best;
    size_t where = 0;
    for (size_t i = 0; i + 1 < s.size(); i++) {
      const auto& slot = table(s[i], s[i + 1]);
      if (slot.rank < best.rank) best = slot, where = i;
    }
    if (best.rank == INT32_MAX) return;
    s[where] = best.result;
    s.erase(s.begin() + int64_t(where) + 1);
  }
}

// The same order of merges by a heap over a linked list: a megabyte of one letter must not take n^2 steps.
void merge_long(const MergeTable& table, std::vector<int32_t>* symbols) {
  struct Candidate {
    int32_t rank, result;
    uint32_t at;
    int32_t left, right;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }     // the top is the smallest
  };
  auto& s = *symbols;
  const uint32_t end = uint32_t(s.size());
  std::vector<uint32_t> next(end), previous(end);
  std::priority_queue<Candidate> queue;
  const auto offer = [&](uint32_t at) {
    if (next[at] == end) return;
    const auto& slot = table(s[at], s[next[at]]);
    if (slot.rank != INT32_MAX) queue.push({slot.rank, slot.result, at, s[at], s[next[at]]});
  };
  for (uint32_t i = 0; i < end; i++) next[i] = i + 1, previous[i] = i - 1;
  for (uint32_t i = 0; i < end; i++) offer(i);
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    if (s[c.at] != c.left || next[c.at] == end || s[next[c.at]] != c.right) continue;      // swallowed or changed since
    const uint32_t gone = next[c.at];
    s[c.at] = c.result;
    s[gone] = -1;
    next[c.at] = next[gone];
    if (next[gone] != end) previous[next[gone]] = c.at;
    offer(c.at);
    if (c.at != 0) offer(previous[c.at]);
  }
  std::erase(s, -1);
}

uint64_t content_hash(const BpeVocabulary& v) {
  std::string bytes = v.pattern + '\0';
  const auto put = [&](int32_t x) { bytes += fmt::format("{} ", x); };
  for (int32_t id : v.byte_ids) put(id);
  for (const BpeMerge& m : v.merges) put(m.left), put(m.right), put(m.result);
  for (const auto& [id, text] : v.added) put(id), put(int32_t(text.size())), bytes += text;
  put(v.end_of_text.value_or(-1));
  return XXH3_64bits(bytes.data(), bytes.size());
}

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeVocabulary vocabulary, std::vector<std::string> bytes_of)
      : vocabulary_(std::move(vocabulary)),
        bytes_of_(std::move(bytes_of)),
        splitter_(vocabulary_.pattern),
        table_(vocabulary_.merges) {
    const uint64_t hash = content_hash(vocabulary_);
    id_ = hash == kGpt2Hash ? "gpt2" : fmt::format("bpe-{:016x}", hash);
  }

  int64_t vocab_size() const override { return int64_t(bytes_of_.size()); }
  std::optional<int32_t> end_of_text() const override { return vocabulary_.end_of_text; }
  std::string id() const override { return id_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    Splitter::Pieces pieces(splitter_, text);
    std::vector<int32_t> out, symbols;
    out.reserve(text.size() / 3);
    std::unique_ptr<PieceCache> cache = borrow_cache();
    for (std::string_view piece; pieces.next(&piece);) {
      if (piece.size() == 1) {
        out.push_back(byte_id(piece[0]));
        continue;
      }
      const bool cached = piece.size() <= kCachedPiece;
      const uint64_t hash = cached ? XXH3_64bits(piece.data(), piece.size()) : 0;
      if (cached && cache->append(piece, hash, &out)) continue;
      merge(piece, &symbols);
      out.insert(out.end(), symbols.begin(), symbols.end());
      if (cached) cache->insert(piece, hash, symbols.data(), symbols.size());
    }
    return_cache(std::move(cache));
    return out;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string out;
    for (int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) fail(kCorrupt, "token {} is outside the vocabulary of {} ({})", id, vocab_size(), id_);
      out += bytes_of_[size_t(id)];
    }
    return out;
  }

  std::string save() const override {
    nlohmann::ordered_json json = {{"format", "wyvern-tokenizer"}, {"version", 1}, {"kind", "bpe"}, {"pattern", vocabulary_.pattern}};
    json["byte_ids"] = vocabulary_.byte_ids;
    auto merges = nlohmann::ordered_json::array();
    for (const BpeMerge& m : vocabulary_.merges) merges.push_back({m.left, m.right, m.result});
    json["merges"] = std::move(merges);
    json["added"] = vocabulary_.added;
    json["end_of_text"] = vocabulary_.end_of_text ? nlohmann::ordered_json(*vocabulary_.end_of_text) : nlohmann::ordered_json(nullptr);
    return json.dump() + "\n";
  }

 private:
  int32_t byte_id(char byte) const { return vocabulary_.byte_ids[uint8_t(byte)]; }
  void merge(std::string_view piece, std::vector<int32_t>* symbols) const {
    if (piece.size() >= UINT32_MAX) fail(kCorrupt, "a piece of {} bytes without a break is too long to tokenize", piece.size());
    symbols->clear();
    for (char byte : piece) symbols->push_back(byte_id(byte));
    if (symbols->size() <= kShortPiece) merge_short(table_, symbols);
    else merge_long(table_, symbols);
  }
  // Encoding is const and may run on several threads: each call takes the warm cache if no other call holds it.
  std::unique_ptr<PieceCache> borrow_cache() const {
    std::unique_ptr<PieceCache> cache;
    {
      const std::lock_guard lock(mutex_);
      cache.swap(cache_);
    }
    return cache ? std::move(cache) : std::make_unique<PieceCache>();
  }
  void return_cache(std::unique_ptr<PieceCache> cache) const {
    const std::lock_guard lock(mutex_);
    cache_ = std::move(cache);
  }

  BpeVocabulary vocabulary_;
  std::vector<std::string> bytes_of_;          // by id
  Splitter splitter_;
  MergeTable table_;
  std::string id_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<PieceCache> cache_;
};

// The bytes of every id; everything a broken vocabulary can do is caught here.
std::vector<std::string> expand(const BpeVocabulary& v, const std::string& name) {
  std::vector<std::optional<std::string>> known;
  size_t total = 0;
  const auto define = [&](int32_t id, const std::string& bytes, const std::string& what) {
    if (id < 0 || id >= kMaxVocabulary) fail(kCorrupt, "{}: {} has id {}; ids run from 0 to {}", name, what, id, kMaxVocabulary - 1);
    if (size_t(id) >= known.size()) known.resize(size_t(id) + 1);
    if (known[size_t(id)] && known[size_t(id)] != bytes) fail(kCorrupt, "{}: {} has id {}, which is taken", name, what, id);
    if ((total += bytes.size()) > kMaxTokenBytes) fail(kCorrupt, "{}: the tokens add up to more than {} bytes", name, kMaxTokenBytes);
    known[size_t(id)] = bytes;
  };
  const auto is_known = [&](int32_t id) { return id >= 0 && size_t(id) < known.size() && known[size_t(id)]; };
  for (int b = 0; b < 256; b++) define(v.byte_ids[size_t(b)], std::string(1, char(uint8_t(b))), fmt::format("byte {}", b));
  for (size_t i = 0; i < v.merges.size(); i++) {
    const auto [left, right, result] = v.merges[i];
    if (!is_known(left) || !is_known(right)) fail(kCorrupt, "{}: merge {} joins {} and {}, not both known before it", name, i, left, right);
    define(result, *known[size_t(left)] + *known[size_t(right)], fmt::format("merge {}", i));
  }
  for (const auto& [id, text] : v.added) {
    if (is_known(id)) fail(kCorrupt, "{}: the added token {} has id {}, which is taken", name, text, id);
    define(id, text, fmt::format("the added token {}", text));
  }
  std::vector<std::string> bytes_of;
  for (size_t id = 0; id < known.size(); id++) {
    if (!known[id]) fail(kCorrupt, "{}: id {} of {} means nothing: no byte, merge or added token has it", name, id, known.size());
    bytes_of.push_back(std::move(*known[id]));
  }
  return bytes_of;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary vocabulary, const std::string& name) {
  std::vector<std::string> bytes_of = expand(vocabulary, name);
  const auto& added = vocabulary.added;
  const auto is_end = [&](const auto& token) { return token.first == vocabulary.end_of_text; };
  if (vocabulary.end_of_text && std::none_of(added.begin(), added.end(), is_end))
    fail(kCorrupt, "{}: the end of text, id {}, is not one of the added tokens", name, *vocabulary.end_of_text);
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(bytes_of));
}

}  // namespace wyvern
