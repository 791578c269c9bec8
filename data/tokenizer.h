// Tokenizer: text (UTF-8 bytes) <-> token ids. Three kinds: bytes (ids 0-255), characters (the sorted code points of a
// corpus), byte-level BPE with the GPT-2 splitting pattern. Special tokens in plain text are ordinary text (they cannot
// be forged); only `end_of_text()` is a control id, and only packers and generators write it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wyvern {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;                               // special tokens included
  virtual std::vector<int32_t> encode(std::string_view text) const = 0; // throws Error on what the kind cannot express
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;    // raw bytes: decode(encode(x)) == x
  virtual std::optional<int32_t> end_of_text() const = 0;               // absent for bytes and characters
  virtual std::string id() const = 0;         // "bytes", "char-<hash>", "gpt2", "bpe-<hash>": beside shards and in checkpoints
  virtual std::string save() const = 0;       // the text of a tokenizer.json (our own format) that load_tokenizer reads
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();
std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view corpus);
std::unique_ptr<Tokenizer> train_bpe(std::string_view corpus, int64_t vocab_size);       // deterministic: ties by smallest pair of ids
// A file written by save(), a folder with `vocab.bpe` + `encoder.json` (or `merges.txt` + `vocab.json`), or the words
// `bytes` and `gpt2` (gpt2 looks for its files in the folder given by WYVERN_GPT2, data/gpt2, ../shared/data/gpt2).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path_or_name);
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& saved_text, const std::string& name_for_errors);

}  // namespace wyvern
