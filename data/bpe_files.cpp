// GPT-2's vocabulary files. They write bytes as printable characters: bytes that are printable in Latin-1 stand for
// themselves, the other 68 are U+0100, U+0101, ... in order. So "Ġ" (U+0120) is the space.
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/files.h"
#include "data/utf8.h"
#include "kernels/base/check.h"

namespace wyvern {
namespace {

using TokenIds = std::unordered_map<std::string, int32_t>;       // in the files' spelling

std::array<std::string, 256> printable_bytes() {
  std::array<std::string, 256> out;
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; b++) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    append_code_point(printable ? b : next++, &out[b]);
  }
  return out;
}

TokenIds read_vocab(const std::string& path) {
  try {
    return nlohmann::json::parse(read_file(path)).get<TokenIds>();
  } catch (const nlohmann::json::exception& e) {
    fail(kCorrupt, "{}: not a vocabulary file ({{\"token\": id, ...}}): {}", path, e.what());
  }
}

}  // namespace

BpeVocabulary read_bpe_files(const std::string& merges_path, const std::string& vocab_path) {
  TokenIds ids = read_vocab(vocab_path);
  TokenIds rest = ids;                                           // loses what bytes and merges account for
  BpeVocabulary out;
  const auto id_of = [&](const std::string& token, const std::string& where) {
    const auto found = ids.find(token);
    if (found == ids.end()) fail(kCorrupt, "{}: the token '{}' is not in {}; do the two files belong together?", where, token, vocab_path);
    rest.erase(token);
    return found->second;
  };
  const auto bytes = printable_bytes();
  for (size_t b = 0; b < 256; b++) out.byte_ids[b] = id_of(bytes[b], fmt::format("byte {}", b));

  const std::string merges = read_file(merges_path);
  require_utf8(merges, merges_path);
  int64_t line_number = 0;
  for (size_t at = 0; at < merges.size();) {
    const size_t end = std::min(merges.find('\n', at), merges.size());
    std::string line = merges.substr(at, end - at);
    at = end + 1;
    line_number++;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::string where = fmt::format("{}:{}", merges_path, line_number);
    const size_t space = line.find(' ');
    if (space == 0 || space == line.npos || space + 1 == line.size() || line.find(' ', space + 1) != line.npos)
      fail(kCorrupt, "{}: a merge is two tokens and one space between them, found '{}'", where, line);
    const std::string left = line.substr(0, space), right = line.substr(space + 1);
    out.merges.push_back({id_of(left, where), id_of(right, where), id_of(left + right, where)});
  }
  for (const auto& [token, id] : rest) {
    out.added.emplace_back(id, token);
    if (token == kEndOfText) out.end_of_text = id;
  }
  std::sort(out.added.begin(), out.added.end());
  return out;
}

}  // namespace wyvern
