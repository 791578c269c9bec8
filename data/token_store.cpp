#include "data/token_store.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/files.h"
#include "data/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/philox.h"

namespace wyvern {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and read in place");

constexpr int32_t kMagic = 20240520, kVersion = 1;
constexpr int32_t kLlama3Magic = 20240801, kEvalMagic = 20240522;        // llm.c's other files
constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);

// Read-only memory of a whole file.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || ::fstat(fd, &status) != 0) {
      const int error = errno;
      if (fd >= 0) ::close(fd);
      fail(kUsage, "{}: cannot be opened: {}", path, std::strerror(error));
    }
    void* memory = nullptr;
    bytes_ = S_ISREG(status.st_mode) ? status.st_size : 0;
    if (bytes_ > 0) memory = ::mmap(nullptr, size_t(bytes_), PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (!S_ISREG(status.st_mode)) fail(kUsage, "{}: not a regular file; give a shard or a pattern such as \"data/train_*.bin\"", path);
    if (memory == MAP_FAILED) fail(kEnvironment, "{}: {} bytes cannot be mapped: {}", path, bytes_, std::strerror(error));
    data_ = static_cast<const char*>(memory);
  }
  Mapping(Mapping&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  ~Mapping() { if (data_) ::munmap(const_cast<char*>(data_), size_t(bytes_)); }
  std::string_view view() const { return {data_, size_t(bytes_)}; }

 private:
  const char* data_ = nullptr;
  int64_t bytes_ = 0;
};

int32_t word(std::string_view bytes, size_t index) {
  int32_t out;
  std::memcpy(&out, bytes.data() + index * sizeof out, sizeof out);
  return out;
}

// What a file that is no shard is instead, as far as its first bytes tell.
std::string guess_format(std::string_view bytes) {
  if (bytes.empty()) return "the file is empty";
  if (bytes.starts_with("\x89HDF\r\n\x1a\n")) return "this is an HDF5 file, perhaps a checkpoint";
  if (bytes.starts_with("\x93NUMPY")) return "this is a NumPy array";
  if (bytes.starts_with("\x1f\x8b") || bytes.starts_with("\x28\xb5\x2f\xfd")) return "this is a compressed file";
  if (bytes.starts_with("PAR1")) return "this is a parquet file";
  if (bytes.starts_with("MMIDIDX")) return "this is a Megatron index";
  std::string_view start = bytes.substr(0, 512);
  while (!start.empty() && start.size() < bytes.size() && is_continuation(bytes[start.size()])) start.remove_suffix(1);
  const auto control = [](char c) { return uint8_t(c) < 32 && !std::strchr("\t\n\r\f", c); };
  if (invalid_utf8_at(start) < 0 && std::none_of(start.begin(), start.end(), control))
    return "this looks like plain text; make shards of it with `wyvern data prepare`";
  const int32_t magic = bytes.size() >= 4 ? word(bytes, 0) : 0;
  if (magic == kLlama3Magic) return "this is llm.c's 32-bit Llama-3 format; only the 16-bit version 1 can be read";
  if (magic == kEvalMagic) return "this is llm.c's format of multiple-choice evaluations";
  if (magic == int32_t(__builtin_bswap32(uint32_t(kMagic)))) return "the bytes are swapped (written on a big-endian machine)";
  return "perhaps raw ids without a header, as nanoGPT writes them";
}

// Everything the header claims, against the file; returns the token count.
int64_t check_header(std::string_view bytes, const std::string& path) {
  const auto size = int64_t(bytes.size());
  if (size < 4 || word(bytes, 0) != kMagic)
    fail(kCorrupt, "{}: not a token shard: expected the magic number {}{}; {}", path, kMagic,
         size < 4 ? "" : fmt::format(", found {}", word(bytes, 0)), guess_format(bytes));
  if (size < kHeaderBytes) fail(kCorrupt, "{}: {} bytes, cut within the header of {}", path, size, kHeaderBytes);
  if (word(bytes, 1) != kVersion) fail(kCorrupt, "{}: shard version {}, expected {}", path, word(bytes, 1), kVersion);
  const int64_t tokens = word(bytes, 2);
  if (tokens < 0) fail(kCorrupt, "{}: the header claims {} tokens; a shard holds 0 to {}", path, tokens, INT32_MAX);
  const int64_t expected = kHeaderBytes + 2 * tokens;
  if (size != expected)
    fail(kCorrupt, "{}: the header claims {} tokens = {} bytes, the file has {} ({} {}); copy or prepare it again", path, tokens, expected,
         size, std::abs(size - expected), size < expected ? "missing" : "too many");
  return tokens;
}

void read_sidecar(ShardInfo* shard) {
  const std::string path = shard->path + ".json";
  if (!std::filesystem::exists(path)) return;
  int64_t tokens = 0;
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    tokens = json.at("tokens");
    shard->tokenizer = json.at("tokenizer").get<std::string>();
    shard->vocab_size = json.at("vocab_size").get<int64_t>();
    shard->documents = json.at("documents").get<int64_t>();
    shard->text_bytes = json.at("bytes").get<int64_t>();
  } catch (const nlohmann::json::exception& e) {
    fail(kCorrupt, "{}: not a shard's description: {}", path, e.what());
  }
  if (tokens != shard->tokens)
    fail(kCorrupt, "{}: describes {} tokens, but {} holds {}; prepare the data again", path, tokens, shard->path, shard->tokens);
}

}  // namespace

std::vector<std::string> shard_paths(const std::string& pattern) {
  if (std::filesystem::exists(pattern)) return {pattern};                // also a name that holds * or [
  glob_t found;
  std::vector<std::string> paths;
  const int error = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (error == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (error != 0 && error != GLOB_NOMATCH) fail(kUsage, "{}: the folder cannot be read", pattern);
  if (paths.empty()) fail(kUsage, "no file matches {} (in {})", pattern, std::filesystem::current_path().string());
  std::sort(paths.begin(), paths.end());                                 // by bytes, whatever the locale
  return paths;
}

struct TokenStore::Impl {
  std::vector<ShardInfo> shards;
  std::vector<std::string_view> ids;           // of each shard: 2 bytes per token
  std::vector<Mapping> mappings;
  std::vector<uint16_t> owned;
};

TokenStore::TokenStore() : impl_(std::make_unique<Impl>()) {}
TokenStore::TokenStore(TokenStore&&) noexcept = default;
TokenStore& TokenStore::operator=(TokenStore&&) noexcept = default;
TokenStore::~TokenStore() = default;

TokenStore TokenStore::open(const std::string& pattern) {
  TokenStore out;
  auto& [shards, ids, mappings, owned] = *out.impl_;
  for (const std::string& path : shard_paths(pattern)) {
    Mapping mapping(path);
    ShardInfo shard{path, check_header(mapping.view(), path)};
    read_sidecar(&shard);
    if (shard.tokens == 0) {
      log_warning("{}: no tokens, skipped", path);
      continue;
    }
    if (!shards.empty() && (shard.tokenizer != shards[0].tokenizer || shard.vocab_size != shards[0].vocab_size))
      fail(kCorrupt, "{} and {} belong to different tokenizers ({} and {}); use one kind of shard in one list", shards[0].path, path,
           shards[0].tokenizer.value_or("not described"), shard.tokenizer.value_or("not described"));
    shards.push_back(shard);
    ids.push_back(mapping.view().substr(kHeaderBytes));
    mappings.push_back(std::move(mapping));
  }
  if (shards.empty()) fail(kCorrupt, "{}: no shard holds any tokens", pattern);
  return out;
}

TokenStore TokenStore::from_tokens(std::vector<uint16_t> tokens, const std::string& name) {
  if (tokens.empty()) fail(kUsage, "{}: no tokens", name);
  TokenStore out;
  Impl& impl = *out.impl_;
  impl.owned = std::move(tokens);
  impl.shards = {{name, int64_t(impl.owned.size())}};
  impl.ids = {{reinterpret_cast<const char*>(impl.owned.data()), impl.owned.size() * sizeof(uint16_t)}};
  return out;
}

const std::vector<ShardInfo>& TokenStore::shards() const { return impl_->shards; }

void TokenStore::require_tokenizer(const std::string& id) const {
  for (const ShardInfo& s : shards())
    if (s.tokenizer && *s.tokenizer != id)
      fail(kUsage,
           "{}: written with tokenizer {} (a vocabulary of {}), not with {}; use the tokenizer.json beside the shard, or prepare the "
           "text again",
           s.path, *s.tokenizer, s.vocab_size.value_or(0), id);
}

int64_t TokenStore::total_tokens() const {
  int64_t total = 0;
  for (const ShardInfo& shard : impl_->shards) total += shard.tokens;
  return total;
}

void TokenStore::read(int64_t shard, int64_t offset, int64_t count, int32_t* out) const {
  CHECK(shard >= 0 && shard < int64_t(impl_->shards.size()), "shard {} of {}", shard, impl_->shards.size());
  const int64_t tokens = impl_->shards[size_t(shard)].tokens;
  CHECK(offset >= 0 && count >= 0 && count <= tokens && offset <= tokens - count, "tokens {} + {} of {}", offset, count, tokens);
  const char* from = impl_->ids[size_t(shard)].data() + 2 * offset;
  for (int64_t i = 0; i < count; i++) {
    uint16_t id;
    std::memcpy(&id, from + 2 * i, sizeof id);
    out[i] = id;
  }
}

uint64_t TokenStore::fingerprint() const {
  uint64_t h = 0;
  for (const ShardInfo& shard : impl_->shards)                           // not the folder: moved data are the same data
    h = mix(mix(h, std::filesystem::path(shard.path).filename().string()), uint64_t(shard.tokens));
  return h;
}

int32_t TokenStore::largest_token(int64_t shard) const {
  CHECK(shard >= 0 && shard < int64_t(impl_->shards.size()), "shard {} of {}", shard, impl_->shards.size());
  const std::string_view bytes = impl_->ids[size_t(shard)];
  uint16_t largest = 0;
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    uint16_t id;
    std::memcpy(&id, bytes.data() + i, sizeof id);
    largest = std::max(largest, id);
  }
  return largest;
}

void write_shard(const std::string& path, const std::vector<int32_t>& tokens, const std::string& tokenizer_id, int64_t vocab_size,
                 int64_t documents, int64_t text_bytes) {
  if (vocab_size < 1 || vocab_size > kMaxVocabulary)
    fail(kUsage, "{}: a vocabulary of {} does not fit 16-bit ids; shards hold up to {}", path, vocab_size, kMaxVocabulary);
  if (tokens.size() > size_t(INT32_MAX)) fail(kUsage, "{}: {} tokens; a shard holds fewer than 2^31", path, tokens.size());
  std::vector<uint16_t> narrow(tokens.size());
  for (size_t i = 0; i < tokens.size(); i++) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size)
      fail(kCorrupt, "{}: token {} is {}, outside the vocabulary of {}; nothing was written", path, i, tokens[i], vocab_size);
    narrow[i] = uint16_t(tokens[i]);
  }
  int32_t header[256] = {kMagic, kVersion, int32_t(tokens.size())};
  const nlohmann::ordered_json sidecar = {{"tokenizer", tokenizer_id}, {"vocab_size", vocab_size}, {"tokens", tokens.size()},
                                          {"documents", documents},    {"bytes", text_bytes}};
  write_atomically(path + ".json", {sidecar.dump() + "\n"});             // first: a shard without it counts as foreign
  write_atomically(path, {{reinterpret_cast<const char*>(header), sizeof header},
                          {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(uint16_t)}});
}

}  // namespace wyvern
