#include "data/tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/files.h"
#include "data/utf8.h"
#include "kernels/base/check.h"

namespace wyvern {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

Json saved_head(const char* kind) { return {{"format", "wyvern-tokenizer"}, {"version", kFormatVersion}, {"kind", kind}}; }

void require_id(int32_t id, int64_t vocab_size, const std::string& tokenizer) {
  if (id < 0 || id >= vocab_size) fail(kCorrupt, "token {} is outside the vocabulary of {} ({})", id, vocab_size, tokenizer);
}

class ByteTokenizer : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> out(text.size());
    std::transform(text.begin(), text.end(), out.begin(), [](char c) { return int32_t(uint8_t(c)); });
    return out;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string out;
    for (int32_t id : ids) {
      require_id(id, vocab_size(), "bytes");
      out.push_back(char(uint8_t(id)));
    }
    return out;
  }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  std::string id() const override { return "bytes"; }
  std::string save() const override { return saved_head("bytes").dump() + "\n"; }
};

class CharTokenizer : public Tokenizer {
 public:
  explicit CharTokenizer(std::vector<char32_t> sorted) : chars_(std::move(sorted)) {
    for (size_t i = 0; i < chars_.size(); i++) ids_[chars_[i]] = int32_t(i);
    id_ = fmt::format("char-{:016x}", XXH3_64bits(chars_.data(), chars_.size() * sizeof(char32_t)));
  }
  int64_t vocab_size() const override { return int64_t(chars_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override {
    require_utf8(text, "text");
    std::vector<int32_t> out;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_code_point(text, &at);
      const auto found = ids_.find(c);
      if (found == ids_.end())
        fail(kUsage, "the character '{}' (U+{:04X}) at byte {} is not among the {} of the {} vocabulary", text.substr(begin, at - begin),
             uint32_t(c), begin, vocab_size(), id_);
      out.push_back(found->second);
    }
    return out;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string out;
    for (int32_t id : ids) {
      require_id(id, vocab_size(), id_);
      append_code_point(chars_[size_t(id)], &out);
    }
    return out;
  }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  std::string id() const override { return id_; }
  std::string save() const override {
    Json json = saved_head("char");
    std::string chars;
    for (char32_t c : chars_) append_code_point(c, &chars);
    json["chars"] = chars;
    return json.dump() + "\n";
  }

 private:
  std::vector<char32_t> chars_;                // sorted: the index is the id
  std::unordered_map<char32_t, int32_t> ids_;
  std::string id_;
};

BpeVocabulary bpe_from(const Json& json) {
  BpeVocabulary v;
  v.pattern = json.at("pattern");
  v.byte_ids = json.at("byte_ids").get<std::array<int32_t, 256>>();
  for (const auto& m : json.at("merges").get<std::vector<std::array<int32_t, 3>>>()) v.merges.push_back({m[0], m[1], m[2]});
  v.added = json.at("added").get<std::vector<std::pair<int32_t, std::string>>>();
  if (!json.at("end_of_text").is_null()) v.end_of_text = json.at("end_of_text").get<int32_t>();
  return v;
}

std::unique_ptr<Tokenizer> from_json(const Json& json, const std::string& name) {
  if (json.is_object() && json.contains("model") && json.contains("added_tokens"))
    fail(kUsage, "{}: this is a Hugging Face tokenizer.json; give a folder with its vocab.json and merges.txt instead", name);
  if (!json.is_object() || json.value("format", "") != "wyvern-tokenizer")
    fail(kCorrupt, "{}: not a Wyvern tokenizer: no \"format\": \"wyvern-tokenizer\"", name);
  const int version = json.at("version");
  if (version != kFormatVersion) fail(kCorrupt, "{}: tokenizer format {}, this build reads {}", name, version, kFormatVersion);
  const std::string kind = json.at("kind");
  if (kind == "bytes") return make_byte_tokenizer();
  if (kind == "char") return make_char_tokenizer(json.at("chars").get<std::string>());
  if (kind == "bpe") return make_bpe_tokenizer(bpe_from(json), name);
  fail(kCorrupt, "{}: unknown tokenizer kind '{}' (known: bytes, char, bpe)", name, kind);
}

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  for (const auto& [merges, vocab] : {std::pair{"vocab.bpe", "encoder.json"}, std::pair{"merges.txt", "vocab.json"}})
    if (fs::exists(folder / merges) && fs::exists(folder / vocab))
      return make_bpe_tokenizer(read_bpe_files((folder / merges).string(), (folder / vocab).string()), folder.string());
  if (fs::exists(folder / "tokenizer.json")) return load_tokenizer((folder / "tokenizer.json").string());
  fail(kUsage, "{}: no tokenizer in this folder (looked for vocab.bpe + encoder.json, merges.txt + vocab.json, tokenizer.json)",
       folder.string());
}

std::unique_ptr<Tokenizer> load_gpt2() {
  if (const char* folder = std::getenv("WYVERN_GPT2"); folder && *folder) return load_folder(folder);
  for (const char* folder : {"data/gpt2", "../shared/data/gpt2"})
    if (fs::is_directory(folder)) return load_folder(folder);
  fail(kUsage, "tokenizer gpt2: no folder with vocab.bpe and encoder.json (looked at $WYVERN_GPT2, data/gpt2, ../shared/data/gpt2)");
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view corpus) {
  require_utf8(corpus, "corpus");
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < corpus.size();) seen[next_code_point(corpus, &at)] = true;
  std::vector<char32_t> chars;
  for (char32_t c = 0; c < seen.size(); c++)
    if (seen[c]) chars.push_back(c);
  if (chars.empty()) fail(kUsage, "no character vocabulary can be made of an empty text");
  if (int64_t(chars.size()) > kMaxVocabulary)
    fail(kUsage, "the text has {} different characters, shards hold ids below {}; use bytes or bpe", chars.size(), kMaxVocabulary);
  return std::make_unique<CharTokenizer>(std::move(chars));
}

std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& saved_text, const std::string& name) {
  try {
    return from_json(Json::parse(saved_text), name);
  } catch (const nlohmann::json::exception& e) {
    fail(kCorrupt, "{}: not a Wyvern tokenizer: {}", name, e.what());
  }
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path_or_name) {
  if (path_or_name == "bytes") return make_byte_tokenizer();
  if (path_or_name == "gpt2") return load_gpt2();
  if (fs::is_directory(path_or_name)) return load_folder(path_or_name);
  if (!fs::exists(path_or_name))
    fail(kUsage, "tokenizer '{}': neither a file nor a folder, nor one of the words bytes and gpt2", path_or_name);
  return parse_tokenizer(read_file(path_or_name), path_or_name);
}

}  // namespace wyvern
