#include "data/prepare.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/bpe.h"
#include "data/documents.h"
#include "data/token_store.h"
#include "data/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace wyvern {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Which part of which document goes where. One document is cut at `cut`; of several each goes to one side.
struct Split {
  std::vector<bool> in_validation;     // by document; empty for one document
  size_t cut = 0;                      // bytes of the one document that are for training
  int64_t documents = 0, bytes = 0, train_bytes = 0;
  uint64_t hash = 0;                   // of all texts in order

  // Visits the parts of all documents in order.
  void for_each(const Documents& documents_in, const std::function<void(std::string_view, bool validation)>& visit) const {
    size_t i = 0;
    documents_in.for_each([&](std::string_view text) {
      if (documents == 1) {
        visit(text.substr(0, cut), false);
        if (cut < text.size()) visit(text.substr(cut), true);
      } else {
        visit(text, in_validation.at(i++));
      }
    });
  }
};

// nanoGPT's split: exactly the first (1 - validation) of the characters.
size_t exact_cut(std::string_view text, double validation) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
  auto left = int64_t(double(characters) * (1 - validation));
  size_t at = 0;
  while (left-- > 0) next_code_point(text, &at);
  return at;
}

// Near the wanted place: after the closest newline within 1 % of the text, else between two characters.
size_t tail_cut(std::string_view text, double validation) {
  auto cut = size_t(double(text.size()) * (1 - validation));
  while (cut > 0 && cut < text.size() && is_continuation(text[cut])) cut--;
  const size_t reach = text.size() / 100;
  const size_t before = cut > 0 ? text.rfind('\n', cut - 1) : text.npos, after = text.find('\n', cut);
  const size_t back = before == text.npos ? text.npos : cut - (before + 1), ahead = after == text.npos ? text.npos : after + 1 - cut;
  if (back <= ahead && back <= reach) return before + 1;
  if (ahead <= reach && after + 1 < text.size()) return after + 1;
  return cut;
}

// By a threshold on each text's hash; a side that stays empty gets the document closest to the threshold.
void split_by_hash(const std::vector<std::pair<uint64_t, int64_t>>& seen, double validation, Split* split) {
  const auto threshold = uint64_t(validation * 0x1p64);
  for (const auto& [hash, bytes] : seen) split->in_validation.push_back(hash < threshold);
  const auto in_validation = std::count(split->in_validation.begin(), split->in_validation.end(), true);
  const bool no_validation = validation > 0 && in_validation == 0, no_training = in_validation == int64_t(seen.size());
  if (no_validation || no_training) {
    const auto chosen = no_validation ? std::min_element(seen.begin(), seen.end()) : std::max_element(seen.begin(), seen.end());
    for (size_t i = 0; i < seen.size(); i++)
      if (seen[i].first == chosen->first) split->in_validation[i] = no_validation;        // with its copies
  }
  for (size_t i = 0; i < seen.size(); i++) split->train_bytes += split->in_validation[i] ? 0 : seen[i].second;
}

Split survey(const Documents& documents, double validation, bool exact) {
  Split split;
  std::vector<std::pair<uint64_t, int64_t>> seen;                        // hash and bytes of each
  size_t cut = 0;
  documents.for_each([&](std::string_view text) {
    seen.emplace_back(XXH3_64bits(text.data(), text.size()), int64_t(text.size()));
    if (seen.size() == 1) cut = validation == 0 ? text.size() : exact ? exact_cut(text, validation) : tail_cut(text, validation);
    split.bytes += int64_t(text.size());
  });
  split.documents = int64_t(seen.size());
  if (seen.empty()) fail(kUsage, "{}: holds no documents", documents.files()[0]);
  split.hash = XXH3_64bits(seen.data(), seen.size() * sizeof seen[0]);
  if (split.documents == 1) {
    split.cut = cut;
    split.train_bytes = int64_t(cut);
  } else {
    split_by_hash(seen, validation, &split);
  }
  if (split.train_bytes == 0 || (validation > 0 && split.train_bytes == split.bytes))
    fail(kUsage, "too little text: {} bytes in {} documents, of which {} would be for training and {} for validation", split.bytes,
         split.documents, split.train_bytes, split.bytes - split.train_bytes);
  return split;
}

std::unique_ptr<Tokenizer> char_tokenizer_of(const Documents& documents) {
  std::vector<bool> seen(0x110000);
  documents.for_each([&](std::string_view text) { for (size_t at = 0; at < text.size();) seen[next_code_point(text, &at)] = true; });
  std::string alphabet;
  for (char32_t c = 0; c < seen.size(); c++)
    if (seen[c]) append_code_point(c, &alphabet);
  return make_char_tokenizer(alphabet);
}

// The vocabulary size of "bpe:<size>"; absent when `tokenizer` means something else.
std::optional<int64_t> bpe_size(const std::string& tokenizer) {
  constexpr std::string_view kPrefix = "bpe:";
  if (!tokenizer.starts_with(kPrefix)) return std::nullopt;
  int64_t size = 0;
  const char* end = tokenizer.data() + tokenizer.size();
  const auto [stop, error] = std::from_chars(tokenizer.data() + kPrefix.size(), end, size);
  if (error != std::errc() || stop != end) fail(kUsage, "tokenizer '{}': expected a vocabulary size, such as bpe:4096", tokenizer);
  return size;
}

std::unique_ptr<Tokenizer> choose_tokenizer(const std::string& name, const Documents& documents, const Split& split) {
  if (name == "char") return char_tokenizer_of(documents);
  const auto size = bpe_size(name);
  if (!size) return load_tokenizer(name);
  PieceCounts pieces;
  split.for_each(documents, [&](std::string_view text, bool validation) { if (!validation) pieces.add(text); });
  return make_bpe_tokenizer(train_bpe_vocabulary(pieces, *size), "trained");
}

// train_000.bin, train_001.bin, ...: collects tokens and writes a shard whenever one is full.
class ShardWriter {
 public:
  ShardWriter(const fs::path& folder, std::string stem, const Tokenizer& tokenizer, int64_t shard_tokens)
      : folder_(folder), stem_(std::move(stem)), tokenizer_(tokenizer), shard_tokens_(size_t(shard_tokens)) {}

  void add(std::string_view document) {
    starts_.push_back(tokens_.size());
    if (const auto end = tokenizer_.end_of_text()) tokens_.push_back(*end);
    const std::vector<int32_t> ids = tokenizer_.encode(document);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    bytes_ += int64_t(document.size());
    while (tokens_.size() > shard_tokens_) write(shard_tokens_);
  }
  void finish() { if (!tokens_.empty()) write(tokens_.size()); }
  int64_t total_tokens() const { return written_tokens_ + int64_t(tokens_.size()); }
  Json description() const {
    return {{"shards", names_}, {"tokens", total_tokens()}, {"documents", written_documents_}, {"bytes", written_bytes_}};
  }

 private:
  void write(size_t count) {
    std::vector<int32_t> part(tokens_.begin(), tokens_.begin() + int64_t(count));
    tokens_.erase(tokens_.begin(), tokens_.begin() + int64_t(count));
    const auto first_kept = std::lower_bound(starts_.begin(), starts_.end(), count);
    const auto documents = int64_t(first_kept - starts_.begin());
    starts_.erase(starts_.begin(), first_kept);
    for (size_t& start : starts_) start -= count;
    const int64_t bytes = tokens_.empty() ? bytes_ : text_bytes_of(part);
    names_.push_back(fmt::format("{}_{:03}.bin", stem_, names_.size()));
    write_shard((folder_ / names_.back()).string(), part, tokenizer_.id(), tokenizer_.vocab_size(), documents, bytes);
    bytes_ -= bytes;
    written_bytes_ += bytes;
    written_documents_ += documents;
    written_tokens_ += int64_t(count);
  }
  int64_t text_bytes_of(std::vector<int32_t> ids) const {
    if (const auto end = tokenizer_.end_of_text()) std::erase(ids, *end);
    return int64_t(tokenizer_.decode(ids).size());
  }
  fs::path folder_;
  std::string stem_;
  const Tokenizer& tokenizer_;
  size_t shard_tokens_;
  std::vector<int32_t> tokens_;                // not written yet, with the places where documents start and their text's bytes
  std::vector<size_t> starts_;
  int64_t bytes_ = 0, written_bytes_ = 0, written_documents_ = 0, written_tokens_ = 0;
  std::vector<std::string> names_;
};

bool is_shard_name(const std::string& name) {                            // train_012.bin, val_000.bin
  const size_t digits = name.starts_with("train_") ? 6 : name.starts_with("val_") ? 4 : 0;
  return digits && name.ends_with(".bin") && name.size() > digits + 4 &&
         std::all_of(name.begin() + int64_t(digits), name.end() - 4, [](char c) { return c >= '0' && c <= '9'; });
}

// Shards of an earlier run would be read along with the new ones. Those without our description are not ours to delete.
void remove_old_shards(const fs::path& folder) {
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!is_shard_name(entry.path().filename().string())) continue;
    if (!fs::exists(entry.path().string() + ".json"))
      fail(kUsage, "{}: was not written by `data prepare` and would be mixed with the new shards; choose another folder or move it",
           entry.path().string());
    old.push_back(entry.path());
  }
  for (const fs::path& path : old) {
    fs::remove(path);
    fs::remove(path.string() + ".json");
  }
  if (!old.empty()) log_info("{}: {} shards of an earlier run are replaced", folder.string(), old.size());
}

void make_folder(const std::string& path) {
  if (path.empty()) fail(kUsage, "no folder to write to");
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path))
    fail(kUsage, "{}: cannot be made a folder: {}", path, error ? error.message() : "a file of that name exists");
}

void write_manifest(const PrepareOptions& options, const Documents& documents, const Split& split, const Tokenizer& tokenizer,
                    const ShardWriter& train, const ShardWriter& val) {
  const Json json = {{"format", "wyvern-data"},
                     {"version", 1},
                     {"tokenizer", tokenizer.id()},
                     {"vocab_size", tokenizer.vocab_size()},
                     {"validation", options.validation},
                     {"split", split.documents == 1 ? "tail" : "document_hash"},
                     {"inputs", documents.files()},
                     {"documents", split.documents},
                     {"bytes", split.bytes},
                     {"xxh3", fmt::format("{:016x}", split.hash)},
                     {"train", train.description()},
                     {"val", val.description()}};
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";      // file names need not be UTF-8
  write_atomically((fs::path(options.out_dir) / "manifest.json").string(), {text});
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) {
  if (!(options.validation >= 0 && options.validation < 1))
    fail(kUsage, "a validation part of {} is not possible; give at least 0 and less than 1", options.validation);
  if (options.shard_tokens < 1 || options.shard_tokens > INT32_MAX)
    fail(kUsage, "shards of {} tokens are not possible; give 1 to {}", options.shard_tokens, INT32_MAX);
  bpe_size(options.tokenizer);                                           // a typing error should not cost a pass over the text
  const Documents documents(options.inputs);
  make_folder(options.out_dir);
  const Split split = survey(documents, options.validation, options.tokenizer == "char");
  const auto tokenizer = choose_tokenizer(options.tokenizer, documents, split);

  const fs::path folder = options.out_dir;
  remove_old_shards(folder);
  const std::string tokenizer_path = (folder / "tokenizer.json").string();
  write_atomically(tokenizer_path, {tokenizer->save()});
  ShardWriter train(folder, "train", *tokenizer, options.shard_tokens), val(folder, "val", *tokenizer, options.shard_tokens);
  split.for_each(documents, [&](std::string_view text, bool validation) { (validation ? val : train).add(text); });
  if (train.total_tokens() < 2 || (options.validation > 0 && val.total_tokens() < 2))
    fail(kUsage, "too little text: {} tokens for training and {} for validation", train.total_tokens(), val.total_tokens());
  train.finish();
  val.finish();
  write_manifest(options, documents, split, *tokenizer, train, val);
  return {train.total_tokens(), val.total_tokens(), tokenizer->vocab_size(), split.documents, split.bytes, tokenizer_path};
}

}  // namespace wyvern
