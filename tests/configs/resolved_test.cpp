// What a schema pass leaves behind: the resolved config, where each value came from, and the reference of all keys.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "configs/node.h"
#include "configs/scalar.h"

namespace wyvern {
namespace {

// Every kind of read, with names in an order that is not the alphabet's.
void schema(const Node& n) {
  n.text("name", {}, "name of the run");
  n.integer("seed", 1337, {0, INT64_MAX}, "of all random numbers");
  const Node model = n.map("model", "the network");
  model.integer("channels", {}, {1, 4096}, "width | of the stream");
  model.map("embedding", "token table").number("dropout", 0.0, {0, 0.99}, "probability");
  model.choice("recompute", {"none", "all"}, "none", "run forward again");
  model.map("unused", "has no keys yet");
  for (const Node& group : model.list("layers", "groups of layers")) {
    group.integer("times", 1, {1, 4096}, "repeats");
    for (const Node& layer : group.list("pattern", "layers of one repeat")) {
      const Node a = layer.map("attention", "the mixer across tokens");
      a.integer("heads", {}, {1, 64}, "query heads");
      a.integer_or_none("window", {}, {1, INT64_MAX}, "tokens seen");
      if (!a.has("rope")) a.text("rope", "none", "none or {base}");
      else a.map("rope", "rotary positions").number("base", 10000.0, {1, 1e12}, "of the frequencies");
    }
  }
  const Node optim = n.map("optim", "the optimizer");
  optim.number("lr", 6e-4, {0, 10}, "step size");
  optim.number("eps", 1e-8, {0, 1, true}, "of the denominator");
  optim.numbers("betas", {{0.9, 0.95}}, "decay rates");
  optim.texts("roles", {{"matrix", "head"}}, "which parameters");
  optim.number_or_none("skip", {}, {0, 1e9}, "z-score");
  optim.boolean("nesterov", false, "look ahead");
  n.text("prompt", "", "start of every sample");
  n.list("empty", "no groups");
}

constexpr const char* kFile =
  "optim: {eps: 1e-6, roles: vector}\n"
  "empty: []\n"
  "name: on\n"
  "prompt: \"a: b\\n# \\\"c\\\"\"\n"
  "model:\n"
  "  channels: 1e2\n"
  "  layers:\n"
  "    - times: 2\n"
  "      pattern: [{attention: {heads: 4, rope: {}}}, {attention: {heads: 2, window: 8}}]\n"
  "    - pattern: [{attention: {heads: 1}}]\n";

constexpr const char* kResolved =
  "name: \"on\"\n"
  "seed: 1337\n"
  "model:\n"
  "  channels: 100\n"
  "  embedding:\n"
  "    dropout: 0.0\n"
  "  recompute: none\n"
  "  unused: {}\n"
  "  layers:\n"
  "    - times: 2\n"
  "      pattern:\n"
  "        - attention:\n"
  "            heads: 4\n"
  "            window: none\n"
  "            rope:\n"
  "              base: 10000.0\n"
  "        - attention:\n"
  "            heads: 2\n"
  "            window: 8\n"
  "            rope: none\n"
  "    - times: 1\n"
  "      pattern:\n"
  "        - attention:\n"
  "            heads: 1\n"
  "            window: none\n"
  "            rope: none\n"
  "optim:\n"
  "  lr: 0.0006\n"
  "  eps: 1.0e-06\n"
  "  betas: [0.9, 0.95]\n"
  "  roles: [vector]\n"
  "  skip: none\n"
  "  nesterov: false\n"
  "prompt: \"a: b\\n# \\\"c\\\"\"\n"
  "empty: []\n";

ConfigTree pass(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  ConfigTree tree = ConfigTree::parse(yaml, "c.yaml", overrides);
  schema(tree.root());
  tree.check();
  return tree;
}

TEST(Resolved, IsInTheOrderOfTheReads) { EXPECT_EQ(pass(kFile).resolved(), kResolved); }

TEST(Resolved, ParsesBackToItself) {
  const ConfigTree again = pass(kResolved);
  EXPECT_EQ(again.resolved(), kResolved);
  const ConfigTree commented = pass(again.resolved_with_origin());
  EXPECT_EQ(commented.resolved(), kResolved);
  EXPECT_EQ(commented.root().text("prompt", {}, ""), "a: b\n# \"c\"");
}

TEST(Resolved, TwoPassesAreOne) {
  const ConfigTree tree = pass(kFile);
  const std::string docs = tree.docs();
  schema(tree.root());
  EXPECT_EQ(tree.resolved(), kResolved);
  EXPECT_EQ(tree.docs(), docs);
}

TEST(Resolved, LongListsGoOneByLine) {
  const auto read = [](const ConfigTree& t) { return t.root().numbers("x", {}, "").size(); };
  std::string yaml = "x: [0";
  for (int i = 1; i < 60; i++) yaml += ", " + std::to_string(i);
  const ConfigTree a = ConfigTree::parse(yaml + "]", "c.yaml");
  EXPECT_EQ(read(a), 60u);
  EXPECT_TRUE(a.resolved().starts_with("x:\n  - 0.0\n  - 1.0\n"));
  const ConfigTree b = ConfigTree::parse(a.resolved(), "c.yaml");
  EXPECT_EQ(read(b), 60u);
  EXPECT_EQ(a.resolved(), b.resolved());
}

TEST(Resolved, SaysWhereEachValueCameFrom) {
  const ConfigTree tree = ConfigTree::parse("a: 1\nm:\n  long_name: text\n", "c.yaml", {"m.o=2"});
  tree.root().integer("a", {}, {}, "");
  const Node m = tree.root().map("m", "");
  m.text("long_name", {}, "");
  m.integer("o", {}, {}, "");
  m.integer("d", 3, {}, "");
  EXPECT_EQ(tree.resolved_with_origin(),
            "a: 1               # c.yaml:1\n"
            "m:                 # c.yaml:2\n"
            "  long_name: text  # c.yaml:3\n"
            "  o: 2             # command line\n"
            "  d: 3             # default\n");
}

TEST(Resolved, DocsListEachKeyOnce) {
  EXPECT_EQ(pass(kFile).docs(),
            "| key | type | default | allowed | meaning |\n"
            "|---|---|---|---|---|\n"
            "| `name` | text | required |  | name of the run |\n"
            "| `seed` | integer | 1337 | >= 0 | of all random numbers |\n"
            "| `model` | map |  |  | the network |\n"
            "| `model.channels` | integer | required | in [1, 4096] | width \\| of the stream |\n"
            "| `model.embedding` | map |  |  | token table |\n"
            "| `model.embedding.dropout` | number | 0.0 | in [0, 0.99] | probability |\n"
            "| `model.recompute` | choice | none | none, all | run forward again |\n"
            "| `model.unused` | map |  |  | has no keys yet |\n"
            "| `model.layers` | list of maps | required |  | groups of layers |\n"
            "| `model.layers[].times` | integer | 1 | in [1, 4096] | repeats |\n"
            "| `model.layers[].pattern` | list of maps | required |  | layers of one repeat |\n"
            "| `model.layers[].pattern[].attention` | map |  |  | the mixer across tokens |\n"
            "| `model.layers[].pattern[].attention.heads` | integer | required | in [1, 64] | query heads |\n"
            "| `model.layers[].pattern[].attention.window` | integer or none | none | >= 1 | tokens seen |\n"
            "| `model.layers[].pattern[].attention.rope` | map |  |  | rotary positions |\n"
            "| `model.layers[].pattern[].attention.rope.base` | number | 10000.0 | in [1, 1000000000000] | of the frequencies |\n"
            "| `optim` | map |  |  | the optimizer |\n"
            "| `optim.lr` | number | 0.0006 | in [0, 10] | step size |\n"
            "| `optim.eps` | number | 1.0e-08 | in (0, 1] | of the denominator |\n"
            "| `optim.betas` | list of numbers | [0.9, 0.95] |  | decay rates |\n"
            "| `optim.roles` | list of texts | [matrix, head] |  | which parameters |\n"
            "| `optim.skip` | number or none | none | in [0, 1000000000] | z-score |\n"
            "| `optim.nesterov` | boolean | false |  | look ahead |\n"
            "| `prompt` | text | \"\" |  | start of every sample |\n"
            "| `empty` | list of maps | required |  | no groups |\n");
}

// Numbers and texts of every shape, through the file format and back.
TEST(Resolved, NumbersRoundTrip) {
  EXPECT_EQ(yaml_number(0.0006), "0.0006");
  EXPECT_EQ(yaml_number(3e-4), "0.0003");
  EXPECT_EQ(yaml_number(1), "1.0");
  EXPECT_EQ(yaml_number(1e-20), "1.0e-20");
  EXPECT_EQ(yaml_number(1e300), "1.0e+300");
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; i++) {
    const uint64_t bits = random();
    const double v = std::bit_cast<double>(bits);
    if (!std::isfinite(v)) continue;
    std::string hint;
    const auto back = parse_number(yaml_number(v), hint);
    ASSERT_TRUE(back) << yaml_number(v) << " " << hint;
    ASSERT_EQ(std::bit_cast<uint64_t>(*back), bits) << yaml_number(v);
    ASSERT_NE(yaml_number(v).find('.'), std::string::npos);
  }
}

TEST(Resolved, TextsRoundTrip) {
  const auto back = [](const std::string& s) {
    return ConfigTree::parse("x: " + yaml_text(s) + "  # c\nl: [" + yaml_text(s) + "]", "c.yaml");
  };
  const char* alphabet[] = {"a", "1", " ", ":", "#", "\"", "'", "\\", "\n", "\t", ",", "[", "]",    "{",    "}",       "-",
                            "*", "&", "!", "%", "@", "`",  "|", ">",  "?",  "~",  ".", "=", "\x01", "\x7f", "\xc3\xa9"};
  std::mt19937_64 random(2);
  for (int i = 0; i < 5'000; i++) {
    std::string s;
    for (uint64_t length = random() % 6; length > 0; length--) s += alphabet[random() % std::size(alphabet)];
    const ConfigTree t = back(s);
    ASSERT_EQ(t.root().text("x", {}, ""), s) << yaml_text(s);
    ASSERT_EQ(t.root().texts("l", {}, ""), std::vector{s}) << yaml_text(s);
    ASSERT_FALSE(t.failed());
  }
  for (const char* plain : {"gpt2-124m", "gelu_tanh", "runs", "data/train_*.bin", "../a.b", "layernorm"})
    EXPECT_EQ(yaml_text(plain), plain);
  for (const char* quoted : {"", "none", "True", "no", "7", "1e3", "-x", "*.bin", "a b", "~"}) EXPECT_NE(yaml_text(quoted), quoted);
}

}  // namespace
}  // namespace wyvern
