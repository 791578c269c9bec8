// Token shards: llm.c's .bin, version 1: 256 x int32 header {magic 20240520, version 1, tokens, 0 ...}, then uint16 ids.
// Memory-mapped; 64-bit offsets over all shards; every header, size and (on request) every id is checked before use.
// Beside each shard lies <shard>.json: {tokenizer, vocab_size, tokens, documents, bytes}; absent for foreign shards.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wyvern {

struct ShardInfo {
  std::string path;
  int64_t tokens = 0;
  std::optional<std::string> tokenizer;     // from the sidecar
  std::optional<int64_t> vocab_size, documents, text_bytes;
};

class TokenStore {
 public:
  // `pattern`: one file or a glob ("data/train_*.bin"), sorted by name. A zero-token shard is skipped with a warning.
  static TokenStore open(const std::string& pattern);
  static TokenStore from_tokens(std::vector<uint16_t> tokens, const std::string& name);      // in memory (eval on text, tests)
  TokenStore(TokenStore&&) noexcept;
  TokenStore& operator=(TokenStore&&) noexcept;
  ~TokenStore();

  const std::vector<ShardInfo>& shards() const;
  int64_t total_tokens() const;
  void require_tokenizer(const std::string& id) const;      // Error(kUsage) when a sidecar names another one
  void read(int64_t shard, int64_t offset, int64_t count, int32_t* out) const;   // never past the shard
  uint64_t fingerprint() const;             // of names, sizes and order: what a loader's position refers to
  int32_t largest_token(int64_t shard) const;   // scans the whole shard
 private:
  TokenStore();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The files a pattern means, sorted by name; Error(kUsage) when there are none.
std::vector<std::string> shard_paths(const std::string& pattern);
// Writes aside, fsyncs, renames. Ids must be < vocab_size <= 65,536, else Error naming the id.
void write_shard(const std::string& path, const std::vector<int32_t>& tokens, const std::string& tokenizer_id,
                 int64_t vocab_size, int64_t documents, int64_t text_bytes);

}  // namespace wyvern
