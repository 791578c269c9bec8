#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "data/bpe.h"
#include "data/utf8.h"
#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

using Ids = std::vector<int32_t>;
const std::string kGpt2Folder = std::string(WYVERN_SHARED) + "/data/gpt2";

class Gpt2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kGpt2Folder)) GTEST_SKIP() << "no " << kGpt2Folder;
    static const std::unique_ptr<Tokenizer> loaded = load_tokenizer(kGpt2Folder);
    tokenizer = loaded.get();
  }
  void expect_ids(const std::string& text, const Ids& ids) {
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  const Tokenizer* tokenizer = nullptr;
};

std::string random_text(std::mt19937& random, size_t code_points) {
  std::string out;
  for (size_t i = 0; i < code_points; i++) {
    char32_t c = random() % 4 ? random() % 128 : random() % 0x110000;
    if (c >= 0xD800 && c < 0xE000) c = ' ';
    append_code_point(c, &out);
  }
  return out;
}

TEST_F(Gpt2, IsRecognised) {
  EXPECT_EQ(tokenizer->id(), "gpt2");
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  EXPECT_EQ(tokenizer->decode({50256}), kEndOfText);
  expect_error(kCorrupt, {"50257", "outside"}, [&] { tokenizer->decode({50257}); });
  expect_error(kCorrupt, {"-1", "outside"}, [&] { tokenizer->decode({-1}); });
}

// Every r50k_base case of gpt-tokenizer's test plans: text with newlines, emoji, CJK, Hangul, Cyrillic.
TEST_F(Gpt2, GoldenEncodings) {
  const std::string plans = slurp(kGpt2Folder + "/gpt-tokenizer-TestPlans.txt");
  const std::string head = "EncodingName: r50k_base\nSample: ", middle = "\nEncoded: [";
  int cases = 0;
  for (size_t at = plans.find(head); at != plans.npos; at = plans.find(head, at)) {
    at += head.size();
    const size_t end = plans.find(middle, at), close = plans.find(']', end);
    ASSERT_NE(close, plans.npos);
    Ids ids;
    for (size_t i = end + middle.size(); i < close; i = plans.find_first_not_of("0123456789", i) + 2)       // "1, 2, 3"
      ids.push_back(std::stoi(plans.substr(i, 6)));
    expect_ids(plans.substr(at, end - at), ids);
    cases++;
  }
  EXPECT_GE(cases, 60);
}

// Ids of the reference implementation (tiktoken 0.14 with the same ranks).
TEST_F(Gpt2, S74_RunsOfWhiteSpace) {
  expect_ids("a  b", {64, 220, 275});
  expect_ids("a   b", {64, 220, 220, 275});
  expect_ids("  a", {220, 257});
  expect_ids("a  ", {64, 220, 220});
  expect_ids("\n\n", {628});
  expect_ids("a\n \nb", {64, 198, 220, 198, 65});
  expect_ids("\t\t\tx", {197, 197, 197, 87});
}

TEST_F(Gpt2, S75_Contractions) {
  expect_ids("I'll I'LL we've don't 'tis rock'n'roll 12345 12,345.6 \u00bd\u00b2 x\u00b2",
             {40,    1183, 314, 6,     3069, 356,  1053, 836, 470,   705, 48010, 3881,  6,    77,
              6,     2487, 17031, 2231, 1105, 11,  27712, 13, 21,    25208, 31185, 2124, 31185});
}

TEST_F(Gpt2, S76_TextCannotForgeTheEndOfText) {
  const std::string text = "one<|endoftext|>two";
  const Ids ids = tokenizer->encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 50256), 0);
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST_F(Gpt2, InvalidUtf8NamesTheByte) {
  expect_error(kCorrupt, {"byte 4", "line 2", "0xff"}, [&] { tokenizer->encode("ab\nc\xff"); });
}

TEST_F(Gpt2, RoundTripAndSave) {
  const auto again = parse_tokenizer(tokenizer->save(), "saved");
  EXPECT_EQ(again->id(), "gpt2");
  std::mt19937 random(1);
  for (int i = 0; i < 300; i++) {
    const std::string text = random_text(random, random() % 200);
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(again->encode(text), ids);
  }
}

TEST_F(Gpt2, ThreadsShareATokenizer) {
  std::mt19937 random(2);
  std::vector<std::string> texts;
  std::vector<Ids> want;
  for (int i = 0; i < 50; i++) texts.push_back(random_text(random, 300));
  const auto alone = parse_tokenizer(tokenizer->save(), "alone");
  for (const std::string& text : texts) want.push_back(alone->encode(text));
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); t++)
    threads.emplace_back([&, t] { for (size_t i = 0; i < texts.size(); i++) wrong[t] += tokenizer->encode(texts[i]) != want[i]; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Prose goes at 60-90 MB/s on an idle core and the three runs in 0.3 s; the bound leaves room for busy machines and sanitizers,
// not for steps that grow with the square of a run (minutes).
TEST_F(Gpt2, SpeedAndLongRuns) {
  const std::string corpus = std::string(WYVERN_SHARED) + "/data/tinyshakespeare.txt";
  std::string text = std::filesystem::exists(corpus) ? slurp(corpus) : std::string(1 << 20, ' ');
  for (const std::string& run : {std::string(500'000, ' '), std::string(500'000, 'a'), std::string(500'000, '=')}) text += run + "\n";
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = tokenizer->encode(text);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_LT(seconds, 10.0);
  RecordProperty("megabytes_per_second", std::to_string(double(text.size()) / 1e6 / seconds));
}

TEST_F(Gpt2, BrokenFilesAreNamed) {
  TempFolder folder;
  const auto write = [&](const std::string& merges, const std::string& vocab) {
    folder.write("merges.txt", merges);
    folder.write("vocab.json", vocab);
  };
  const std::string vocab = slurp(kGpt2Folder + "/encoder.json");
  write("#version: 0.2\n\u0120 t\nq zq\n", vocab);
  expect_error(kCorrupt, {"merges.txt:3", "zq"}, [&] { load_tokenizer(folder / ""); });
  write("#version: 0.2\n\u0120 t extra\n", vocab);
  expect_error(kCorrupt, {"merges.txt:2", "two tokens"}, [&] { load_tokenizer(folder / ""); });
  write("#version: 0.2\n", vocab.substr(0, vocab.size() / 2));
  expect_error(kCorrupt, {"vocab.json", "parse"}, [&] { load_tokenizer(folder / ""); });
  write("#version: 0.2\n", "{\"!\": 0}");
  expect_error(kCorrupt, {"vocab.json", "byte 0"}, [&] { load_tokenizer(folder / ""); });
}

TEST(Tokenizer, Bytes) {
  const auto bytes = load_tokenizer("bytes");
  std::mt19937 random(3);
  std::string text;
  for (int i = 0; i < 1000; i++) text.push_back(char(random()));
  EXPECT_EQ(bytes->decode(bytes->encode(text)), text);
  EXPECT_EQ(bytes->encode("\xff"), Ids{255});
  EXPECT_EQ(bytes->vocab_size(), 256);
  EXPECT_FALSE(bytes->end_of_text());
  EXPECT_EQ(parse_tokenizer(bytes->save(), "saved")->id(), "bytes");
  expect_error(kCorrupt, {"256"}, [&] { bytes->decode({256}); });
}

TEST(Tokenizer, Characters) {
  const auto chars = make_char_tokenizer("caf\u00e9 \U0001F30D\nabc");
  EXPECT_EQ(chars->vocab_size(), 8);                                     // \n, space, a, b, c, f, e acute, globe
  EXPECT_EQ(chars->encode("\n caf\u00e9"), (Ids{0, 1, 4, 2, 5, 6}));
  EXPECT_EQ(chars->decode({7}), "\U0001F30D");
  EXPECT_EQ(parse_tokenizer(chars->save(), "saved")->id(), chars->id());
  EXPECT_NE(make_char_tokenizer("abd")->id(), make_char_tokenizer("abc")->id());
  expect_error(kUsage, {"'z'", "U+007A", "byte 2"}, [&] { chars->encode("abz"); });
  expect_error(kCorrupt, {"byte 1"}, [&] { chars->encode("a\xc3"); });
  expect_error(kUsage, {"empty"}, [&] { make_char_tokenizer(""); });
}

TEST(Tokenizer, UnusableFilesAreNamed) {
  TempFolder folder;
  expect_error(kUsage, {"no_such_thing"}, [&] { load_tokenizer("no_such_thing"); });
  expect_error(kUsage, {"no tokenizer in this folder"}, [&] { load_tokenizer(folder / ""); });
  const auto parse = [](const std::string& text) { return [=] { parse_tokenizer(text, "t.json"); }; };
  expect_error(kCorrupt, {"t.json"}, parse("not json"));
  expect_error(kCorrupt, {"t.json", "format"}, parse("{}"));
  expect_error(kCorrupt, {"t.json", "format"}, parse("[1, 2]"));
  expect_error(kUsage, {"t.json", "Hugging Face"}, parse(R"({"model": {}, "added_tokens": []})"));
  const std::string head = R"({"format": "wyvern-tokenizer", "version": )";
  expect_error(kCorrupt, {"t.json", "2", "1"}, parse(head + R"(2, "kind": "bytes"})"));
  expect_error(kCorrupt, {"t.json", "wordpiece"}, parse(head + R"(1, "kind": "wordpiece"})"));
  expect_error(kCorrupt, {"t.json", "pattern"}, parse(head + R"(1, "kind": "bpe"})"));
}

TEST(Tokenizer, BrokenVocabulariesAreRefused) {
  BpeVocabulary good;
  for (int b = 0; b < 256; b++) good.byte_ids[size_t(b)] = b;
  good.merges = {{'a', 'b', 256}, {256, 'c', 257}};
  EXPECT_EQ(make_bpe_tokenizer(good, "t")->encode("abc"), Ids{257});
  const auto refuse = [&](std::initializer_list<std::string> parts, const std::function<void(BpeVocabulary&)>& spoil) {
    BpeVocabulary v = good;
    spoil(v);
    expect_error(kCorrupt, parts, [&] { make_bpe_tokenizer(v, "t"); });
  };
  refuse({"merge 0", "258"}, [](auto& v) { v.merges[0].left = 258; });
  refuse({"merge 1", "256", "taken"}, [](auto& v) { v.merges[1].result = 256; });
  refuse({"id 257"}, [](auto& v) { v.merges[1].result = 258; });
  refuse({"merge 1", "70000"}, [](auto& v) { v.merges[1].result = 70000; });
  refuse({"byte 9", "taken"}, [](auto& v) { v.byte_ids[9] = 8; });
  refuse({"end of text", "258"}, [](auto& v) { v.end_of_text = 258; });
  refuse({"add up"}, [](auto& v) {                                       // doubles with every merge: 2^40 bytes if believed
    for (int32_t id = 257; id < 300; id++) v.merges.push_back({id, id, id + 1});
  });
  refuse({"(unclosed", "compile"}, [](auto& v) { v.pattern = "(unclosed"; });
}

// What a pattern does not match is kept as pieces of its own.
TEST(Tokenizer, PatternsWithGapsLoseNothing) {
  const Splitter splitter(R"(\p{L}+)");
  std::vector<std::string> pieces;
  Splitter::Pieces pass(splitter, "12ab, cd!");
  for (std::string_view piece; pass.next(&piece);) pieces.emplace_back(piece);
  EXPECT_EQ(pieces, (std::vector<std::string>{"12", "ab", ", ", "cd", "!"}));
}

// U+180E is a format character since Unicode 6.3, but white space to PCRE2's own \s.
TEST(Tokenizer, WhiteSpaceIsUnicodes) {
  const Splitter splitter(kGpt2Pattern);
  const auto split = [&](std::string_view text) {
    std::vector<std::string> pieces;
    Splitter::Pieces pass(splitter, text);
    for (std::string_view piece; pass.next(&piece);) pieces.emplace_back(piece);
    return pieces;
  };
  EXPECT_EQ(split(" \u180ex"), (std::vector<std::string>{" \u180e", "x"}));
  EXPECT_EQ(split("\u3000\u3000x"), (std::vector<std::string>{"\u3000", "\u3000", "x"}));
  EXPECT_EQ(split("x\u0085\u2028 y"), (std::vector<std::string>{"x", "\u0085\u2028", " y"}));
}

TEST(Utf8, Table3_7) {
  for (std::string good : {"", "a", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"})
    EXPECT_EQ(invalid_utf8_at(good), -1) << good;
  for (std::string bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff"}) {
    EXPECT_EQ(invalid_utf8_at(bad), 0);
    EXPECT_EQ(invalid_utf8_at("0123456789" + bad + "0123456789"), 10);
  }
  for (char32_t c = 0; c < 0x110000; c++) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    append_code_point(c, &text);
    size_t at = 0;
    ASSERT_EQ(invalid_utf8_at(text), -1);
    ASSERT_EQ(next_code_point(text, &at), c);
    ASSERT_EQ(at, text.size());
  }
}

}  // namespace
}  // namespace wyvern
