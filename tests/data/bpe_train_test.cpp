#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

#include "data/bpe.h"
#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

// The definition: recount everything before every merge, take the most frequent pair, the smallest ids on a tie.
std::vector<BpeMerge> train_naively(const PieceCounts& pieces, int32_t vocab_size) {
  std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
  for (const auto& [piece, count] : pieces.counts()) {
    words.push_back({{}, count});
    for (char byte : piece) words.back().first.push_back(uint8_t(byte));
  }
  std::vector<BpeMerge> merges;
  for (int32_t id = 256; id < vocab_size - 1; id++) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;               // sorted: the first maximum has the smallest ids
    for (const auto& [symbols, count] : words)
      for (size_t i = 0; i + 1 < symbols.size(); i++) counts[{symbols[i], symbols[i + 1]}] += count;
    const auto best = std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
    const auto [left, right] = best->first;
    merges.push_back({left, right, id});
    for (auto& word : words) {
      std::vector<int32_t> merged;
      const auto& s = word.first;
      for (size_t i = 0; i < s.size(); i++) {
        const bool here = i + 1 < s.size() && s[i] == left && s[i + 1] == right;
        merged.push_back(here ? id : s[i]);
        i += here;
      }
      word.first = merged;
    }
  }
  return merges;
}

std::string babble(uint32_t seed, int words) {
  std::mt19937 random(seed);
  std::string out;
  for (int i = 0; i < words; i++) {
    for (uint32_t k = 1 + random() % 6; k > 0; k--) out += char('a' + std::min(random() % 5, random() % 5));
    out += random() % 9 ? " " : "\n";
  }
  return out + std::string(50, 'a');
}

TEST(BpeTraining, EqualsTheDefinition) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    PieceCounts pieces;
    pieces.add(babble(seed, 2000));
    const auto got = train_bpe_vocabulary(pieces, 420).merges, want = train_naively(pieces, 420);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++) {
      EXPECT_EQ(got[i].left, want[i].left) << "merge " << i;
      EXPECT_EQ(got[i].right, want[i].right) << "merge " << i;
      EXPECT_EQ(got[i].result, want[i].result) << "merge " << i;
    }
  }
}

TEST(BpeTraining, LayoutAndRoundTrip) {
  const auto bpe = train_bpe(babble(4, 2000), 300);
  EXPECT_EQ(bpe->vocab_size(), 300);
  EXPECT_EQ(bpe->end_of_text(), 299);
  EXPECT_EQ(bpe->encode("z"), std::vector<int32_t>{'z'});
  const std::string text = "aab  \u00e9\U0001F30D<|endoftext|>\n";
  EXPECT_EQ(bpe->decode(bpe->encode(text)), text);
  const auto again = parse_tokenizer(bpe->save(), "saved");
  EXPECT_EQ(again->id(), bpe->id());
  EXPECT_EQ(again->save(), bpe->save());
  EXPECT_EQ(again->encode(babble(5, 100)), bpe->encode(babble(5, 100)));
  EXPECT_EQ(train_bpe("", 257)->vocab_size(), 257);                      // bytes and the end of text need no corpus
}

// Short pieces and long ones take different paths through the encoder; ids must not depend on which.
TEST(BpeTraining, LongPiecesMergeInTheSameOrder) {
  PieceCounts pieces;
  pieces.add(babble(6, 3000));
  const BpeVocabulary v = train_bpe_vocabulary(pieces, 400);
  const auto bpe = make_bpe_tokenizer(v, "t");
  std::mt19937 random(7);
  for (size_t length : {2, 31, 32, 33, 34, 64, 65, 200, 1000}) {
    std::string word;
    while (word.size() < length) word += char('a' + std::min(random() % 5, random() % 5));
    std::vector<int32_t> want(word.begin(), word.end());
    for (bool merged = true; merged;) {                                  // the first rank that applies, at its first place
      merged = false;
      for (const BpeMerge& m : v.merges) {
        for (size_t i = 0; i + 1 < want.size() && !merged; i++) {
          if (want[i] != m.left || want[i + 1] != m.right) continue;
          want[i] = m.result;
          want.erase(want.begin() + int64_t(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    EXPECT_EQ(bpe->encode(word), want) << length;
    EXPECT_EQ(bpe->encode(word), want) << "from the cache, " << length;
  }
}

TEST(BpeTraining, ImpossibleSizesAreRefused) {
  const std::string text = babble(8, 100);
  expect_error(kUsage, {"256", "257"}, [&] { train_bpe(text, 256); });
  expect_error(kUsage, {"65537"}, [&] { train_bpe(text, 65537); });
  expect_error(kUsage, {"too small", "at most"}, [&] { train_bpe("abab ", 300); });
  EXPECT_EQ(train_bpe("abab ", 258)->encode("abab"), (std::vector<int32_t>{256, 256}));
  expect_error(kCorrupt, {"byte 2"}, [&] { train_bpe("ab\xff", 257); });
}

TEST(BpeTraining, FourThousandTokensInSeconds) {
  const std::string corpus = std::string(WYVERN_SHARED) + "/data/tinyshakespeare.txt";
  if (!std::filesystem::exists(corpus)) GTEST_SKIP() << "no " << corpus;
  const std::string text = slurp(corpus);
  const auto start = std::chrono::steady_clock::now();
  const auto bpe = train_bpe(text, 4096);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto ids = bpe->encode(text);
  EXPECT_EQ(bpe->decode(ids), text);
  EXPECT_GT(double(text.size()) / double(ids.size()), 3.0);              // 3.24 bytes per token; GPT-2's 50,257 reach 3.30
  EXPECT_LT(seconds, 10.0);                                              // 0.1 s on an idle core
}

}  // namespace
}  // namespace wyvern
