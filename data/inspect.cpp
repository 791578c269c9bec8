#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "data/counted_source.h"
#include "data/prepare.h"
#include "data/token_store.h"
#include "data/tokenizer.h"
#include "kernels/base/check.h"

namespace wyvern {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kChunk = 1 << 20, kShown = 64;                         // tokens per read, and of the beginning in the report

struct Scan {
  int32_t largest = 0;
  int64_t ends_of_text = 0;
  uint64_t hash = 0;
};

Scan scan(const TokenStore& store, std::optional<int32_t> end_of_text) {
  Scan out;
  const int64_t tokens = store.total_tokens();
  std::vector<int32_t> chunk(size_t(std::min(tokens, kChunk)));
  for (int64_t at = 0; at < tokens; at += kChunk) {
    const int64_t count = std::min(kChunk, tokens - at);
    store.read(0, at, count, chunk.data());
    out.largest = std::max(out.largest, *std::max_element(chunk.begin(), chunk.begin() + count));
    if (end_of_text) out.ends_of_text += std::count(chunk.begin(), chunk.begin() + count, *end_of_text);
    out.hash = XXH3_64bits_withSeed(chunk.data(), size_t(count) * sizeof chunk[0], out.hash);
  }
  return out;
}

std::unique_ptr<Tokenizer> tokenizer_beside(const std::string& shard) {
  const fs::path path = fs::path(shard).parent_path() / "tokenizer.json";
  return fs::exists(path) ? load_tokenizer(path.string()) : nullptr;
}

// JSON of one shard; what is wrong with it goes to `problems`.
Json inspect_shard(const std::string& path, std::map<uint64_t, std::string>* by_hash, std::vector<std::string>* problems) {
  const auto complain = [&](const std::string& what) { problems->push_back(fmt::format("{}: {}", path, what)); };
  const TokenStore store = TokenStore::open(path);
  const auto tokenizer = tokenizer_beside(path);
  const ShardInfo& info = store.shards()[0];
  const bool matches = tokenizer && tokenizer->id() == info.tokenizer;
  const Scan found = scan(store, matches ? tokenizer->end_of_text() : std::nullopt);
  if (tokenizer && info.tokenizer && !matches)
    complain(fmt::format("made with the tokenizer {}, but tokenizer.json beside it is {}", *info.tokenizer, tokenizer->id()));
  if (info.vocab_size && found.largest >= *info.vocab_size)
    complain(fmt::format("holds the id {}, outside its vocabulary of {}", found.largest, *info.vocab_size));
  if (matches && tokenizer->end_of_text() && found.ends_of_text != info.documents)
    complain(fmt::format("described as {} documents, but {} start in it", *info.documents, found.ends_of_text));
  const auto [same, is_new] = by_hash->emplace(found.hash, path);
  if (!is_new) complain(fmt::format("holds the same tokens as {}", same->second));

  Json out = {{"path", path}, {"tokens", info.tokens}, {"largest_id", found.largest}, {"xxh3", fmt::format("{:016x}", found.hash)}};
  out["tokenizer"] = info.tokenizer ? Json(*info.tokenizer) : Json(nullptr);
  out["vocab_size"] = info.vocab_size ? Json(*info.vocab_size) : Json(nullptr);
  out["documents"] = info.documents ? Json(*info.documents) : Json(nullptr);
  out["bytes"] = info.text_bytes ? Json(*info.text_bytes) : Json(nullptr);
  std::vector<int32_t> begin(size_t(std::min(info.tokens, kShown)));
  store.read(0, 0, int64_t(begin.size()), begin.data());
  out["first_tokens"] = begin;
  const bool readable = matches && found.largest < tokenizer->vocab_size();
  out["first_text"] = readable ? Json(tokenizer->decode(begin)) : Json(nullptr);
  return out;
}

std::string dump(const Json& json, int indent = -1) {                    // the shown text may end within a character
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string as_text(const Json& report) {
  const auto count = [](const Json& n) { return n.is_null() ? std::string("?") : grouped(n.get<int64_t>()); };
  std::string out;
  for (const Json& shard : report["shards"]) {
    out += fmt::format("{}: {} tokens, largest id {} of {}, {} documents, {} bytes, tokenizer {}\n", shard["path"].get<std::string>(),
                       count(shard["tokens"]), count(shard["largest_id"]), count(shard["vocab_size"]), count(shard["documents"]),
                       count(shard["bytes"]), shard["tokenizer"].is_null() ? "not described" : shard["tokenizer"].get<std::string>());
  }
  const Json& first = report["shards"][0];
  const bool readable = !first["first_text"].is_null();
  out += fmt::format("begins with: {}\n", dump(readable ? first["first_text"] : first["first_tokens"]));
  return out + fmt::format("{} shards, {} tokens; every header, description and id is as it should be\n", report["shards"].size(),
                           count(report["tokens"]));
}

}  // namespace

std::string inspect(const std::string& pattern, bool json) {
  Json report = {{"shards", Json::array()}};
  std::vector<std::string> problems;
  std::map<uint64_t, std::string> by_hash;
  const std::vector<std::string> paths = shard_paths(pattern);
  for (const std::string& path : paths) {
    try {
      report["shards"].push_back(inspect_shard(path, &by_hash, &problems));
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  if (problems.empty()) {
    try {
      report["tokens"] = TokenStore::open(pattern).total_tokens();       // also that they belong together
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  if (!problems.empty()) {
    std::string list;
    for (const std::string& problem : problems) list += "\n  " + problem;
    fail(kCorrupt, "{} shards checked, {} problems:{}", paths.size(), problems.size(), list);
  }
  return json ? dump(report, 2) + "\n" : as_text(report);
}

}  // namespace wyvern
