#include "data/token_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

std::string shard_bytes(int32_t magic, int32_t version, int64_t claimed, const std::vector<uint16_t>& ids) {
  int32_t header[256] = {magic, version, int32_t(claimed)};
  std::string out(reinterpret_cast<const char*>(header), sizeof header);
  return out.append(reinterpret_cast<const char*>(ids.data()), 2 * ids.size());
}
std::string good_bytes(const std::vector<uint16_t>& ids) { return shard_bytes(20240520, 1, int64_t(ids.size()), ids); }

std::vector<int32_t> read_all(const TokenStore& store, int64_t shard) {
  std::vector<int32_t> out(size_t(store.shards()[size_t(shard)].tokens));
  store.read(shard, 0, int64_t(out.size()), out.data());
  return out;
}

TEST(TokenStore, WritesWhatItReads) {
  TempFolder folder;
  const std::vector<int32_t> ids = {0, 1, 65535, 50256, 7};
  write_shard(folder / "a.bin", ids, "test", 65536, 2, 11);
  EXPECT_EQ(slurp(folder / "a.bin"), good_bytes({0, 1, 65535, 50256, 7}));           // llm.c's layout, byte for byte
  const TokenStore store = TokenStore::open(folder / "a.bin");
  EXPECT_EQ(read_all(store, 0), ids);
  EXPECT_EQ(store.largest_token(0), 65535);
  const ShardInfo& shard = store.shards()[0];
  EXPECT_EQ(shard.tokenizer, "test");
  EXPECT_EQ(shard.vocab_size, 65536);
  EXPECT_EQ(shard.documents, 2);
  EXPECT_EQ(shard.text_bytes, 11);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.bin.partial"));
}

TEST(TokenStore, GlobIsSortedByName) {
  TempFolder folder;
  for (int i : {2, 0, 1}) write_shard(folder / fmt::format("t_{}.bin", i), {i, i}, "test", 10, 1, 2);
  const TokenStore store = TokenStore::open(folder / "t_*.bin");                     // the sidecars t_0.bin.json do not match
  ASSERT_EQ(store.shards().size(), 3u);
  for (int i = 0; i < 3; i++) EXPECT_EQ(read_all(store, i), (std::vector<int32_t>{i, i}));
  EXPECT_EQ(store.total_tokens(), 6);
  write_shard(folder / "odd[1]*.bin", {5}, "test", 10, 1, 1);
  EXPECT_EQ(read_all(TokenStore::open(folder / "odd[1]*.bin"), 0), std::vector<int32_t>{5});
  expect_error(kUsage, {"none_*.bin"}, [&] { TokenStore::open(folder / "none_*.bin"); });
  expect_error(kUsage, {"regular file", "train_*.bin"}, [&] { TokenStore::open(folder / ""); });
}

TEST(TokenStore, S01_IdsNeverWrap) {
  TempFolder folder;
  const std::string path = folder / "a.bin";
  expect_error(kUsage, {"a.bin", "70000", "65536"}, [&] { write_shard(path, {1}, "test", 70000, 1, 1); });
  expect_error(kCorrupt, {"a.bin", "token 1 is 65536"}, [&] { write_shard(path, {1, 65536}, "test", 65536, 1, 1); });
  expect_error(kCorrupt, {"token 0 is 100", "100"}, [&] { write_shard(path, {100}, "test", 100, 1, 1); });
  expect_error(kCorrupt, {"token 0 is -1"}, [&] { write_shard(path, {-1}, "test", 100, 1, 1); });
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TokenStore, S02_HeaderIsNotTrusted) {
  TempFolder folder;
  const std::vector<uint16_t> ids(1000, 3);
  const std::string good = good_bytes(ids);
  const auto refuse = [&](const std::string& bytes, std::initializer_list<std::string> parts) {
    const std::string path = folder.write("bad.bin", bytes);
    expect_error(kCorrupt, parts, [&] { TokenStore::open(path); });
    expect_error(kCorrupt, {path}, [&] { TokenStore::open(path); });
  };
  std::string swapped = good;
  std::swap(swapped[0], swapped[3]);
  std::swap(swapped[1], swapped[2]);
  refuse(swapped, {"magic", "20240520", "swapped"});
  refuse(shard_bytes(20240520, 2, 1000, ids), {"version 2", "expected 1"});
  refuse(good.substr(0, good.size() - 1), {"1000 tokens = 3024 bytes", "has 3023", "1 missing"});
  refuse(good.substr(0, good.size() - 1000), {"3024", "2024", "1000 missing"});
  refuse(good + "xx", {"3024", "3026", "2 too many"});
  refuse(good.substr(0, 100), {"100 bytes", "header of 1024"});
  refuse(shard_bytes(20240520, 1, INT32_MAX, ids), {"2147483647", "4294968318", "3024"});
  refuse(shard_bytes(20240520, 1, int64_t(1) << 31, ids), {"-2147483648"});
  refuse(shard_bytes(20240520, 1, 0, ids), {"0 tokens", "3024"});
  refuse(shard_bytes(20240520, 1, -1, ids), {"-1 tokens"});
  refuse(shard_bytes(20240801, 7, 1000, ids), {"Llama-3"});
  refuse(std::string(5000, 'a') + "\n\u00e9", {"plain text", "data prepare"});
  refuse("hi", {"plain text"});
  refuse("", {"empty"});
  refuse("\x89HDF\r\n\x1a\n" + std::string(3000, '\0'), {"HDF5"});
  refuse(std::string(3000, '\1'), {"nanoGPT"});
}

TEST(TokenStore, SidecarsMustAgree) {
  TempFolder folder;
  write_shard(folder / "a.bin", {1, 2, 3}, "one", 10, 1, 3);
  write_shard(folder / "b.bin", {1, 2, 3}, "two", 10, 1, 3);
  expect_error(kCorrupt, {"a.bin", "b.bin", "one", "two"}, [&] { TokenStore::open(folder / "*.bin"); });
  std::filesystem::remove(folder / "b.bin.json");
  expect_error(kCorrupt, {"not described"}, [&] { TokenStore::open(folder / "*.bin"); });
  folder.write("b.bin.json", R"({"tokenizer": "one", "vocab_size": 10, "tokens": 4, "documents": 1, "bytes": 3})");
  expect_error(kCorrupt, {"b.bin.json", "4", "3"}, [&] { TokenStore::open(folder / "b.bin"); });
  folder.write("b.bin.json", "{");
  expect_error(kCorrupt, {"b.bin.json", "parse"}, [&] { TokenStore::open(folder / "b.bin"); });
}

TEST(TokenStore, S04_EmptyShardsAreSkippedOrRefused) {
  TempFolder folder;
  folder.write("a.bin", good_bytes({1, 2}));
  folder.write("b.bin", good_bytes({}));
  folder.write("c.bin", good_bytes({3, 4}));
  EXPECT_EQ(TokenStore::open(folder / "*.bin").shards().size(), 2u);
  expect_error(kCorrupt, {"b.bin", "no shard holds any tokens"}, [&] { TokenStore::open(folder / "b.bin"); });
}

// Two sparse shards, 3.2e9 tokens together: offsets and totals beyond 32 bits.
TEST(TokenStore, S05_MoreThanTwoToThe31Tokens) {
  TempFolder folder;
  const int64_t tokens = 1'600'000'000;
  for (const char* name : {"a.bin", "b.bin"}) {
    folder.write(name, shard_bytes(20240520, 1, tokens, {}));
    std::filesystem::resize_file(folder / name, uintmax_t(1024 + 2 * tokens));
    std::fstream file(folder / name, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(1024 + 2 * (tokens - 2));
    file.write("\x07\x00\x08\x00", 4);
  }
  const TokenStore store = TokenStore::open(folder / "*.bin");
  EXPECT_EQ(store.total_tokens(), 3'200'000'000);
  std::vector<int32_t> end(3);
  store.read(1, tokens - 3, 3, end.data());
  EXPECT_EQ(end, (std::vector<int32_t>{0, 7, 8}));
  EXPECT_THROW(store.read(1, tokens - 2, 3, end.data()), Error);
}

TEST(TokenStore, ReadsStayWithinTheShard) {
  const TokenStore store = TokenStore::from_tokens({1, 2, 3}, "memory");
  int32_t out[4] = {};
  store.read(0, 3, 0, out);
  for (auto [shard, offset, count] : {std::array<int64_t, 3>{0, 0, 4}, {0, -1, 1}, {0, 3, 1}, {1, 0, 1}, {0, 1, INT64_MAX}, {0, 0, -1}})
    EXPECT_THROW(store.read(shard, offset, count, out), Error) << shard << " " << offset << " " << count;
}

TEST(TokenStore, S09_FingerprintOfNamesSizesOrder) {
  const auto fingerprint = [](std::initializer_list<std::pair<const char*, int>> shards) {
    TempFolder folder;                                                               // another folder each time: it must not matter
    for (const auto& [name, tokens] : shards) folder.write(name, good_bytes(std::vector<uint16_t>(size_t(tokens), 1)));
    return TokenStore::open(folder / "*").fingerprint();
  };
  const uint64_t base = fingerprint({{"a", 5}, {"b", 6}});
  EXPECT_EQ(fingerprint({{"a", 5}, {"b", 6}}), base);
  EXPECT_NE(fingerprint({{"a", 5}}), base);
  EXPECT_NE(fingerprint({{"a", 5}, {"b", 6}, {"c", 1}}), base);
  EXPECT_NE(fingerprint({{"a", 5}, {"c", 6}}), base);
  EXPECT_NE(fingerprint({{"a", 6}, {"b", 5}}), base);
}

}  // namespace
}  // namespace wyvern
