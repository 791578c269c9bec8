#include "data/prepare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "data/documents.h"
#include "data/token_store.h"
#include "data/tokenizer.h"
#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

std::vector<int32_t> tokens_of(const std::string& pattern) {
  const TokenStore store = TokenStore::open(pattern);
  std::vector<int32_t> all;
  for (size_t i = 0; i < store.shards().size(); i++) {
    std::vector<int32_t> part(size_t(store.shards()[i].tokens));
    store.read(int64_t(i), 0, int64_t(part.size()), part.data());
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
std::string text_of(const std::string& pattern, const std::string& tokenizer_path) {
  return load_tokenizer(tokenizer_path)->decode(tokens_of(pattern));
}
std::string lines(int count, const std::string& word) {
  std::string out;
  for (int i = 0; i < count; i++) out += fmt::format("{} number {}\n", word, i);
  return out;
}

TEST(Prepare, OneDocumentIsSplitByItsTail) {
  TempFolder folder;
  const std::string text = lines(1000, "line");
  const PrepareResult result = prepare({{folder.write("in.txt", text)}, folder / "out", "bytes"});
  const std::string train = text_of(folder / "out/train_*.bin", result.tokenizer_path), val = text_of(folder / "out/val_*.bin", "bytes");
  EXPECT_EQ(train + val, text);
  EXPECT_EQ(train.back(), '\n');
  EXPECT_NEAR(double(val.size()), 0.1 * double(text.size()), 0.01 * double(text.size()));
  EXPECT_EQ(result.train_tokens, int64_t(train.size()));
  EXPECT_EQ(result.val_tokens, int64_t(val.size()));
  EXPECT_EQ(result.bytes, int64_t(text.size()));
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.vocab_size, 256);
  const auto manifest = nlohmann::json::parse(slurp(folder / "out/manifest.json"));
  EXPECT_EQ(manifest["split"], "tail");
  EXPECT_EQ(manifest["train"]["shards"], nlohmann::json({"train_000.bin"}));
  EXPECT_EQ(manifest["val"]["tokens"], result.val_tokens);
}

TEST(Prepare, TheTailStartsAtACharacter) {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 100; i++) text += "\u20ac";                                    // no newline anywhere, three bytes each
  const PrepareResult result = prepare({{folder.write("in.txt", text)}, folder / "out", "bytes", 0.25});
  EXPECT_EQ(result.train_tokens, 225);
  EXPECT_EQ(prepare({{folder / "in.txt"}, folder / "out", "bytes", 0.0}).val_tokens, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "out/val_000.bin"));                 // the one of the first run is gone
}

// nanoGPT's char split of tiny Shakespeare: 65 characters, 1,003,854 and 111,540 tokens.
TEST(Prepare, CharactersAreSplitAsInNanoGpt) {
  const std::string corpus = std::string(WYVERN_SHARED) + "/data/tinyshakespeare.txt";
  if (!std::filesystem::exists(corpus)) GTEST_SKIP() << "no " << corpus;
  TempFolder folder;
  const PrepareResult result = prepare({{corpus}, folder / "out", "char"});
  EXPECT_EQ(result.vocab_size, 65);
  EXPECT_EQ(result.train_tokens, 1'003'854);
  EXPECT_EQ(result.val_tokens, 111'540);
  std::vector<int32_t> ids = tokens_of(folder / "out/train_*.bin");
  ids.resize(15);                                                                    // "First Citizen:\n" in nanoGPT's ids
  EXPECT_EQ(ids, (std::vector<int32_t>{18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 43, 52, 10, 0}));
}

TEST(Prepare, DocumentsGoToOneSideWithTheirCopies) {
  TempFolder folder;
  std::string jsonl;
  for (int i = 0; i < 300; i++)
    jsonl += nlohmann::json{{"text", fmt::format("text {}", i % 150)}, {"id", i}}.dump() + "\n" + (i % 7 ? "" : "\n");
  const PrepareResult result = prepare({{folder.write("in.jsonl", jsonl)}, folder / "out", "bpe:260", 0.2});
  EXPECT_EQ(result.documents, 300);
  const auto tokenizer = load_tokenizer(result.tokenizer_path);
  const auto documents = [&](const std::string& pattern) {
    std::multiset<std::string> out;
    std::vector<int32_t> current;
    const std::vector<int32_t> ids = tokens_of(pattern);
    EXPECT_EQ(ids[0], tokenizer->end_of_text());                                     // at the start of each document
    for (size_t i = 1; i <= ids.size(); i++) {
      if (i < ids.size() && ids[i] != tokenizer->end_of_text()) current.push_back(ids[i]);
      else out.insert(tokenizer->decode(std::exchange(current, {})));
    }
    return out;
  };
  const auto train = documents(folder / "out/train_*.bin"), val = documents(folder / "out/val_*.bin");
  EXPECT_EQ(train.size() + val.size(), 300u);
  EXPECT_NEAR(double(val.size()), 60, 5 * std::sqrt(4 * 150 * 0.2 * 0.8));           // pairs of copies
  for (const std::string& text : val) EXPECT_FALSE(train.contains(text)) << text;
  for (int i = 0; i < 150; i++) EXPECT_EQ(train.count(fmt::format("text {}", i)) + val.count(fmt::format("text {}", i)), 2u);
  EXPECT_EQ(TokenStore::open(folder / "out/val_*.bin").shards()[0].documents, int64_t(val.size()));
}

TEST(Prepare, FewDocumentsStillGiveBothSides) {
  for (int round = 0; round < 20; round++) {
    TempFolder folder;
    folder.write("in/a.txt", lines(20, fmt::format("alpha{}", round)));
    folder.write("in/b.txt", lines(20, fmt::format("beta{}", round)));
    const PrepareResult result = prepare({{folder / "in"}, folder / "out", "bytes", round % 2 ? 0.01 : 0.99});
    EXPECT_GT(result.train_tokens, 0);
    EXPECT_GT(result.val_tokens, 0);
  }
}

TEST(Prepare, S76_TextCannotForgeADocument) {
  TempFolder folder;
  folder.write("in/a.txt", lines(50, "a<|endoftext|>b"));
  folder.write("in/b.txt", lines(50, "c"));
  const auto result = prepare({{folder / "in"}, folder / "out", "bpe:270", 0.0});
  const auto ids = tokens_of(folder / "out/train_*.bin");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 269), 2);
  EXPECT_EQ(TokenStore::open(folder / "out/train_*.bin").shards()[0].documents, 2);
  EXPECT_EQ(result.train_tokens, int64_t(ids.size()));
}

TEST(Prepare, LongDataFillSeveralShards) {
  TempFolder folder;
  for (int i = 0; i < 10; i++) folder.write(fmt::format("in/{}.txt", i), lines(10 + i, "caf\u00e9"));
  PrepareOptions options{{folder / "in"}, folder / "one", "bpe:280", 0.0};
  const PrepareResult one = prepare(options);
  options.out_dir = folder / "many";
  options.shard_tokens = 100;
  prepare(options);
  const TokenStore store = TokenStore::open(folder / "many/train_*.bin");
  EXPECT_EQ(store.shards().size(), size_t((one.train_tokens + 99) / 100));
  EXPECT_EQ(tokens_of(folder / "many/train_*.bin"), tokens_of(folder / "one/train_*.bin"));
  int64_t documents = 0, bytes = 0;
  for (const ShardInfo& shard : store.shards()) documents += *shard.documents, bytes += *shard.text_bytes;
  EXPECT_EQ(documents, 10);
  EXPECT_EQ(bytes, one.bytes);
  inspect(folder / "many/train_*.bin", false);                                       // counts each shard's document starts again
  const auto written = [&] {
    return slurp(folder / "many/manifest.json") + slurp(folder / "many/train_003.bin") + slurp(folder / "many/tokenizer.json");
  };
  const std::string before = written();
  prepare(options);
  EXPECT_EQ(written(), before);
}

// A document that starts exactly where a shard ends belongs to the next one.
TEST(Prepare, DocumentsOfExactlyOneShard) {
  TempFolder folder;
  const std::string in = folder.write("in.jsonl", "{\"text\": \"0123456789\"}\n{\"text\": \"abcdefghij\"}\n");
  PrepareOptions options{{in}, folder / "out", "bytes", 0.0};
  options.shard_tokens = 10;
  prepare(options);
  const TokenStore store = TokenStore::open(folder / "out/train_*.bin");
  ASSERT_EQ(store.shards().size(), 2u);
  for (const ShardInfo& shard : store.shards()) {
    EXPECT_EQ(shard.documents, 1);
    EXPECT_EQ(shard.text_bytes, 10);
  }
}

TEST(Prepare, OldShardsAreNotMixedIn) {
  TempFolder folder;
  const std::string in = folder.write("in.txt", lines(100, "x"));
  PrepareOptions options{{in}, folder / "out", "bytes"};
  options.shard_tokens = 100;
  prepare(options);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/train_005.bin"));
  options.shard_tokens = 1'000'000;
  prepare(options);
  EXPECT_EQ(TokenStore::open(folder / "out/train_*.bin").shards().size(), 1u);
  folder.write("out/train_001.bin", "somebody else's");
  expect_error(kUsage, {"train_001.bin", "choose another folder"}, [&] { prepare(options); });
  EXPECT_EQ(slurp(folder / "out/train_001.bin"), "somebody else's");
  EXPECT_TRUE(std::filesystem::exists(folder / "out/train_000.bin"));
}

TEST(Prepare, FoldersAreSearchedForText) {
  TempFolder folder;
  folder.write("in/b.txt", "b");
  folder.write("in/a/deep.MD", "deep");
  folder.write("in/README", "readme \u00e9");
  folder.write("in/c.jsonl", "{\"text\": \"one\"}\r\n\n{\"text\": \"\"}\n{\"text\": \"two\"}");
  folder.write("in/binary", std::string("\x7f""ELF\0\0", 6));
  folder.write("in/latin1", "caf\xe9 au lait, and more text behind it");
  folder.write("in/zero.txt", std::string("a\0b", 3));
  folder.write("in/empty.txt", "");
  folder.write("in/code.cpp", "int main() {}");
  folder.write("in/.git/config.txt", "hidden");
  std::vector<std::string> texts;
  Documents({folder / "in", folder / "in/b.txt"}).for_each([&](std::string_view text) { texts.emplace_back(text); });
  EXPECT_EQ(texts, (std::vector<std::string>{"readme \u00e9", "deep", "b", "one", "two"}));
}

TEST(Prepare, UnusableInputIsNamed) {
  TempFolder folder;
  const auto refuse = [&](int code, const std::string& input, const std::string& tokenizer, std::initializer_list<std::string> parts) {
    expect_error(code, parts, [&] { prepare({{input}, folder / "out", tokenizer}); });
    EXPECT_FALSE(std::filesystem::exists(folder / "out/train_000.bin"));
  };
  const std::string good = folder.write("good.txt", lines(50, "good"));
  refuse(kUsage, folder / "missing.txt", "bytes", {"missing.txt", "no such"});
  refuse(kUsage, folder.write("empty.txt", ""), "bytes", {"empty.txt", "empty"});
  refuse(kCorrupt, folder.write("latin1.txt", "first line\ncaf\xe9\n"), "bytes", {"latin1.txt", "byte 14", "line 2", "0xe9"});
  refuse(kUsage, folder.write("utf16.txt", std::string("a\0b\0", 4)), "bytes", {"utf16.txt", "byte 1"});
  refuse(kCorrupt, folder.write("bad.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n"), "bytes", {"bad.jsonl:2", "text"});
  refuse(kCorrupt, folder.write("type.jsonl", "{\"text\": 7}\n"), "bytes", {"type.jsonl:1"});
  refuse(kCorrupt, folder.write("half.jsonl", "{\"text\": \"a"), "bytes", {"half.jsonl:1", "parse"});
  refuse(kUsage, folder.write("blank.jsonl", "\n\n"), "bytes", {"blank.jsonl", "no documents"});
  refuse(kUsage, folder.write("short.txt", "a"), "bytes", {"too little text", "1 bytes"});
  refuse(kUsage, folder.write("same.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\"}\n"), "bytes", {"too little text"});
  refuse(kUsage, good, "bpe:100", {"100", "257"});
  refuse(kUsage, good, "bpe:60000", {"too small", "60000"});
  refuse(kUsage, good, "bpe:4k", {"bpe:4k", "bpe:4096"});
  refuse(kUsage, good, "gpt3", {"gpt3", "neither"});
  std::filesystem::create_directories(folder / "none");
  refuse(kUsage, folder / "none", "bytes", {"no text in this folder"});
  expect_error(kUsage, {"no input"}, [&] { prepare({{}, folder / "out", "bytes"}); });
  expect_error(kUsage, {"good.txt", "folder"}, [&] { prepare({{good}, good, "bytes"}); });
  for (double validation : {-0.1, 1.0, std::nan("")})
    expect_error(kUsage, {"validation"}, [&] { prepare({{good}, folder / "out", "bytes", validation}); });
}

TEST(Inspect, ReportsAndChecksEverything) {
  TempFolder folder;
  PrepareOptions options{{folder.write("in.txt", lines(400, "caf\u00e9"))}, folder / "out", "bpe:270"};
  options.shard_tokens = 1500;
  const PrepareResult result = prepare(options);
  const std::string pattern = folder / "out/train_*.bin";
  const auto report = nlohmann::json::parse(inspect(pattern, true));
  EXPECT_EQ(report["tokens"], result.train_tokens);
  EXPECT_EQ(report["shards"][0]["vocab_size"], 270);
  EXPECT_EQ(report["shards"][0]["largest_id"], 269);
  EXPECT_EQ(report["shards"][0]["documents"], 1);
  EXPECT_TRUE(report["shards"][0]["first_text"].get<std::string>().starts_with("<|endoftext|>caf\u00e9 number 0\ncaf\u00e9 number 1\n"));
  const std::string text = inspect(pattern, false);
  for (const char* part : {"train_000.bin: 1,500 tokens", "largest id 269 of 270", "caf\u00e9 number 0\\n"})
    EXPECT_NE(text.find(part), std::string::npos) << text;

  write_shard(folder / "out/train_000.bin", std::vector<int32_t>(1500, 269), load_tokenizer(result.tokenizer_path)->id(), 270, 1, 1);
  folder.write("out/train_001.bin", "plain text");
  expect_error(kCorrupt, {"2 problems", "train_000.bin", "1500 start", "train_001.bin", "plain text"}, [&] { inspect(pattern, false); });
}

TEST(Inspect, FindsIdsAndTokenizersThatDoNotFit) {
  TempFolder folder;
  write_shard(folder / "a.bin", {1, 2, 300}, "other", 400, 1, 3);
  const auto report = nlohmann::json::parse(inspect(folder / "a.bin", true));
  EXPECT_EQ(report["shards"][0]["first_tokens"], nlohmann::json({1, 2, 300}));
  EXPECT_TRUE(report["shards"][0]["first_text"].is_null());
  write_shard(folder / "b.bin", {1, 2, 300}, "other", 400, 1, 3);
  expect_error(kCorrupt, {"b.bin", "same tokens", "a.bin"}, [&] { inspect(folder / "*.bin", false); });
  folder.write("tokenizer.json", load_tokenizer("bytes")->save());
  expect_error(kCorrupt, {"1 problems", "other", "bytes"}, [&] { inspect(folder / "a.bin", false); });
  folder.write("a.bin.json", R"({"tokenizer": "bytes", "vocab_size": 256, "tokens": 3, "documents": 1, "bytes": 3})");
  expect_error(kCorrupt, {"id 300", "256"}, [&] { inspect(folder / "a.bin", false); });
}

}  // namespace
}  // namespace wyvern
