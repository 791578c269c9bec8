// From text to token shards: out_dir/{train,val}_NNN.bin with their descriptions, tokenizer.json and manifest.json.
// The same inputs and options give the same bytes. Shards of an earlier run in the same folder are replaced.
//   one document       split by its tail: the last `validation` part, cut at a line's end when one is near (char: exactly)
//   several documents  split by a hash of their text, so copies of a text never end up on both sides
// A tokenizer with an end of text puts it at the start of each document (as llm.c and modded-nanogpt do).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.h"      // read_text_file, for those who evaluate on text

namespace wyvern {

struct PrepareOptions {
  std::vector<std::string> inputs;     // text files, .jsonl files, folders
  std::string out_dir;
  std::string tokenizer;               // bytes | char | gpt2 | a file or folder | bpe:4096 = train on the training part
  double validation = 0.1;             // part of the text, 0 for none
  int64_t shard_tokens = 100'000'000;
};
struct PrepareResult {
  int64_t train_tokens = 0, val_tokens = 0, vocab_size = 0, documents = 0, bytes = 0;
  std::string tokenizer_path;
};
PrepareResult prepare(const PrepareOptions&);

// Checks every header, description and id of the shards that `pattern` means and reports on them, as text or as JSON.
// Anything wrong: Error(kCorrupt) that lists all of it.
std::string inspect(const std::string& pattern, bool json);

}  // namespace wyvern
