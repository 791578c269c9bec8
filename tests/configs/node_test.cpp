// Reading and refusing: the number grammar, booleans, texts, unknown and duplicate and missing keys, all errors at once.
#include "tests/configs/errors_of.h"

namespace wyvern {
namespace {

const Schema kInteger = [](const Node& n) { n.integer("n", {}, {-10'000, 10'000}, "a count"); };
const Schema kNumber = [](const Node& n) { n.number("x", {}, {-1e6, 1e6}, "a factor"); };
const Schema kFlag = [](const Node& n) { n.boolean("flag", {}, "a switch"); };
const Schema kText = [](const Node& n) { n.text("name", {}, "a name"); };

int64_t integer(const std::string& word) { return parsed("n: " + word).root().integer("n", {}, {}, ""); }
double number(const std::string& word) { return parsed("x: " + word).root().number("x", {}, {}, ""); }
std::string text(const std::string& word) { return parsed("name: " + word).root().text("name", {}, ""); }

// ---- scalars ---------------------------------------------------------------------------------------------------------
TEST(Node, S68_NumberGrammar) {
  for (const char* word : {"1e-4", "1E-4", "1.0e-4", ".0001", "0.0001", "1e-04", "+1e-4", "1e-4 # c"}) {
    EXPECT_EQ(errors_of(std::string("x: ") + word, kNumber), Strings()) << word;
    EXPECT_EQ(number(word), 1e-4) << word;
  }
  EXPECT_EQ(number("1e4"), 1e4);
  EXPECT_EQ(number("1_000.5"), 1000.5);
  EXPECT_EQ(number("-1"), -1);
  EXPECT_EQ(integer("+5"), 5);
  EXPECT_EQ(integer("-1"), -1);
  EXPECT_EQ(integer("1e3"), 1000);
  EXPECT_EQ(integer("2.50e1"), 25);
  EXPECT_EQ(integer("3.0"), 3);
  EXPECT_EQ(integer("1_000"), 1000);
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("9007199254740993"), 9007199254740993);            // 2^53 + 1: lost by a double
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);

  for (const char* word : {"\"1e-4\"", "'3'",   "0x10",  "0b1",    "010",  "-007", "nan", "NaN",    ".nan", "inf", "-.inf", "infinity",
                           "",         "~",     "none",  "null",   "1__0", "_1",   "1_",  "1,000",  "4k",   "1e",  "e3",    ".",
                           "+",        "1.2.3", "1e999", "1e-999", "abc",  "yes",  "[1]", "{a: 1}", "1 2",  "--1"}) {
    EXPECT_TRUE(
        one_error(errors_of(std::string("x: ") + word, kNumber), {"c.yaml:1:", "x: expected a number in [-1000000, 1000000], got "}))
        << word;
    EXPECT_TRUE(one_error(errors_of(std::string("n: ") + word, kInteger), {"c.yaml:1:", "n: expected an integer in [-10000, 10000], got "}))
        << word;
  }
  for (const char* word : {"1.5", "1e-4", "10001", "9223372036854775808", "1e19", "1e300", "-10001"})
    EXPECT_TRUE(one_error(errors_of(std::string("n: ") + word, kInteger), {"c.yaml:1:4: n: expected an integer", word})) << word;
}

TEST(Node, NumberHintsSayWhatToDo) {
  EXPECT_EQ(errors_of("x: '0.1'", kNumber),
            Strings{"c.yaml:1:4: x: expected a number in [-1000000, 1000000], got '0.1'; remove the quotes"});
  EXPECT_EQ(errors_of("n: 010", kInteger),
            Strings{"c.yaml:1:4: n: expected an integer in [-10000, 10000], got '010'; remove the leading zero"});
  EXPECT_TRUE(one_error(errors_of("n: 0x10", kInteger), {"write it in decimal"}));
  EXPECT_TRUE(one_error(errors_of("n: 1,000", kInteger), {"1000 or 1_000"}));
  EXPECT_TRUE(one_error(errors_of("n: 1.5", kInteger), {"whole number"}));
  EXPECT_TRUE(one_error(errors_of("n: 1e30", kInteger), {"64 bits"}));
  EXPECT_TRUE(one_error(errors_of("x: 1e-999", kNumber), {"range of a double"}));
  EXPECT_TRUE(one_error(errors_of("x: .inf", kNumber), {"finite"}));
}

TEST(Node, RangesAreKeptAndNamed) {
  const auto read = [](Range r) { return [r](const Node& n) { EXPECT_TRUE(n.number("x", 0.5, r, "") >= r.low); }; };
  EXPECT_EQ(errors_of("x: 0", read({0, 1})), Strings());
  EXPECT_TRUE(one_error(errors_of("x: 0", read({0, 1, true})), {"a number in (0, 1], got '0'"}));
  EXPECT_TRUE(one_error(errors_of("x: -1", read({.low = 0})), {"a number >= 0, got '-1'"}));
  EXPECT_TRUE(one_error(errors_of("x: -1", read({.low = 0, .open_low = true})), {"a number > 0, got '-1'"}));
  EXPECT_TRUE(one_error(errors_of("x: 1.01", read({0, 1})), {"a number in [0, 1], got '1.01'"}));
  const ConfigTree t = parsed("n: 0");
  EXPECT_EQ(t.root().integer("n", {}, {8, 16}, ""), 8);                // a value inside the range, so that the pass can go on
  EXPECT_GT(t.root().number("n", {}, {0, 1, true}, ""), 0);
  EXPECT_TRUE(t.failed());
}

TEST(Node, S71_BooleansAreAFixedSet) {
  for (const char* word : {"true", "yes", "on"}) EXPECT_TRUE(parsed(std::string("flag: ") + word).root().boolean("flag", {}, "")) << word;
  for (const char* word : {"false", "no", "off"}) {
    const ConfigTree t = parsed(std::string("flag: ") + word);
    EXPECT_FALSE(t.root().boolean("flag", true, "")) << word;
    EXPECT_FALSE(t.failed()) << word;
  }
  for (const char* word : {"y", "n", "0", "1", "False", "TRUE", "\"false\"", "'true'", "", "none", "maybe", "[true]"})
    EXPECT_TRUE(one_error(errors_of(std::string("flag: ") + word, kFlag), {"c.yaml:1:", "flag: expected a boolean, got "})) << word;
  EXPECT_TRUE(one_error(errors_of("flag: \"false\"", kFlag), {"remove the quotes"}));
  EXPECT_TRUE(one_error(errors_of("flag: 0", kFlag), {"write false"}));
  for (const char* word : {"on", "no", "yes", "true", "7", "1e3", "010", "y"})
    EXPECT_EQ(text(word), word);  // texts stay as they are written
}

TEST(Node, TextsAndNull) {
  EXPECT_EQ(text("\"\""), "");
  EXPECT_EQ(text("'none'"), "none");
  EXPECT_EQ(text("\"~\""), "~");
  for (const char* word : {"", "~", "null", "NULL", "none", "[a]", "{a: b}"})
    EXPECT_TRUE(one_error(errors_of(std::string("name: ") + word, kText), {"c.yaml:1:", "name: expected a text, got "})) << word;
  const ConfigTree t = parsed("rope: none\nplace: none\nold: 'none'");
  EXPECT_EQ(t.root().text("rope", "none", ""), "none");               // the schema knows the word none here
  EXPECT_EQ(t.root().choice("place", {"pre", "none"}, "pre", ""), "none");
  EXPECT_FALSE(t.root().has("rope"));
  EXPECT_TRUE(t.root().has("old"));
  EXPECT_NO_THROW((t.root().text("old", "x", ""), t.check()));
}

TEST(Node, NoneForOptionalNumbers) {
  const ConfigTree t = parsed("a: none\nb: ~\nc:\nd: 3\nf: 1.0");
  const Node n = t.root();
  EXPECT_EQ(n.integer_or_none("a", 7, {}, ""), std::nullopt);
  EXPECT_EQ(n.integer_or_none("b", 7, {}, ""), std::nullopt);
  EXPECT_EQ(n.number_or_none("c", 7, {}, ""), std::nullopt);
  EXPECT_EQ(n.integer_or_none("d", {}, {}, ""), 3);
  EXPECT_EQ(n.number_or_none("e", {}, {}, ""), std::nullopt);
  EXPECT_EQ(n.number_or_none("g", 2.5, {}, ""), 2.5);
  EXPECT_EQ(n.number_or_none("f", {}, {}, ""), 1.0);
  EXPECT_NO_THROW(t.check());
  const auto window = [](const Node& n) { EXPECT_EQ(n.integer_or_none("w", {}, {1, 9}, ""), std::nullopt); };
  EXPECT_TRUE(one_error(errors_of("w: None", window), {"w: expected an integer or none in [1, 9], got 'None'"}));
  EXPECT_TRUE(one_error(errors_of("w: 0", window), {"got '0'"}));
}

TEST(Node, ChoicesSuggest) {
  const auto read = [](const Node& n) { EXPECT_EQ(n.choice("kind", {"layernorm", "rmsnorm"}, {}, "norm kind"), "rmsnorm"); };
  EXPECT_EQ(errors_of("kind: rmsnorm", read), Strings());
  EXPECT_EQ(errors_of("kind: rmsnrom", read),
            Strings{"c.yaml:1:7: kind: expected one of layernorm, rmsnorm, got 'rmsnrom'; did you mean 'rmsnorm'?"});
  EXPECT_TRUE(one_error(errors_of("kind: RMSNorm", read), {"did you mean 'rmsnorm'?"}));
  const auto other = [](const Node& n) { EXPECT_EQ(n.choice("kind", {"sum", "mix"}, "mix", ""), "mix"); };
  for (const char* word : {"batch", "7", "none", "", "[sum]", "{sum: 1}"})
    EXPECT_TRUE(one_error(errors_of(std::string("kind: ") + word, other), {"expected one of sum, mix"})) << word;
  EXPECT_EQ(parsed("bias: yes").root().choice("bias", {"true", "false", "qkv"}, "false", ""), "true");
}

TEST(Node, Lists) {
  const ConfigTree t = parsed("betas: [0.9, 1e-2]\nroles: [matrix, 'none']\nrole: vector");
  EXPECT_EQ(t.root().numbers("betas", {}, ""), (std::vector<double>{0.9, 0.01}));
  EXPECT_EQ(t.root().texts("roles", {}, ""), (Strings{"matrix", "none"}));
  EXPECT_EQ(t.root().texts("role", {}, ""), Strings{"vector"});
  EXPECT_EQ(t.root().numbers("absent", {{1.0, 2.0}}, ""), (std::vector<double>{1, 2}));
  EXPECT_NO_THROW(t.check());
  const auto read = [](const Node& n) { EXPECT_EQ(n.numbers("b", {{1.0, 2.0}}, "").size(), 2); };
  EXPECT_EQ(errors_of("b: [0.9, x]", read), Strings{"c.yaml:1:10: b[1]: expected a number, got 'x'"});
  EXPECT_TRUE(one_error(errors_of("b: 0.9", read), {"b: expected a list of numbers, got '0.9'"}));
  EXPECT_TRUE(one_error(errors_of("r: [a, [b]]", [](const Node& n) { n.texts("r", {}, ""); }), {"r[1]: expected a text, got a list"}));
}

// ---- keys ------------------------------------------------------------------------------------------------------------
const Schema kSmall = [](const Node& n) {
  n.text("name", "run", "name of the run");
  const Node optim = n.map("optim", "the optimizer");
  optim.number("learning_rate", 1e-3, {0, 10}, "step size");
  optim.number("weight_decay", 0.1, {0, 10}, "decay");
  optim.map("schedule", "of the step size").integer("warmup", 0, {0, 1000}, "steps");
};

TEST(Node, S69_UnknownKeysAreNamedWithTheNearest) {
  EXPECT_EQ(errors_of("optim:\n  weigth_decay: 1", kSmall),
            Strings{"c.yaml:2:3: unknown key 'optim.weigth_decay'; did you mean 'weight_decay'?"});
  EXPECT_EQ(errors_of("optim: {Weight-Decay: 1}", kSmall),
            Strings{"c.yaml:1:9: unknown key 'optim.Weight-Decay'; did you mean 'weight_decay'?"});
  EXPECT_EQ(errors_of("learning_rate: 1", kSmall), Strings{"c.yaml:1:1: unknown key 'learning_rate'; it belongs to 'optim'"});
  EXPECT_EQ(errors_of("optim:\nschedule:\n  warmup: 3", kSmall),
            Strings{"c.yaml:2:1: unknown key 'schedule'; it belongs to 'optim'"});  // mis-indented
  EXPECT_EQ(errors_of("optim: {momentum: 1}", kSmall),
            Strings{"c.yaml:1:9: unknown key 'optim.momentum'; 'optim' has the keys learning_rate, weight_decay, schedule"});
  EXPECT_EQ(errors_of("x: {y: 1, z: [1, 2]}", kSmall),
            Strings{"c.yaml:1:1: unknown key 'x'; the top level has the keys name, optim"});  // one, not three
  // A path as a key would be taken for the key that it names, and read as nothing.
  EXPECT_TRUE(one_error(errors_of("optim.weight_decay: 0.1", kSmall), {"c.yaml:1:1:", "nest maps"}));
  const auto kinds = [](const Node& n) {
    for (const char* map : {"a", "b"}) n.map(map, "").text("kind", "x", "");
    n.map("c", "").text("other", "x", "");
  };
  EXPECT_EQ(errors_of("c: {kind: 1}", kinds), Strings{"c.yaml:1:5: unknown key 'c.kind'; 'c' has the keys other"});  // a or b: no hint
  EXPECT_TRUE(one_error(errors_of("name: a", kSmall, {"optim.clip=1"}), {"command line: unknown key 'optim.clip'; 'optim' has the keys"}));
  EXPECT_TRUE(one_error(errors_of("optim:\n\tweight_decay: 1", kSmall), {"c.yaml:2:", "indent with spaces, not tabs"}));
  EXPECT_TRUE(one_error(errors_of("optim:\n  weight_decay: 1\n\tname: x", kSmall), {"c.yaml:3:1", "indent with spaces, not tabs"}));
}

TEST(Node, S70_DuplicateKeysNameBothLines) {
  EXPECT_EQ(errors_of("name: a\noptim: {}\nname: b", kSmall),
            Strings{"c.yaml:3:1: key 'name' is given twice, first on line 1; keep one of them"});
  EXPECT_TRUE(one_error(errors_of("optim: {weight_decay: 1, weight_decay: 2}", kSmall), {"c.yaml:1:26:", "first on line 1"}));
  EXPECT_TRUE(one_error(errors_of("optim: {<<: {a: 1}}", kSmall), {"c.yaml:1:9:", "merge keys (<<) are not supported"}));
  EXPECT_TRUE(one_error(errors_of("", kSmall, {"optim={weight_decay: 1, weight_decay: 2}"}), {"command line: override 'optim=", "twice"}));
}

TEST(Node, MissingKeysNameTheirPlace) {
  const auto read = [](const Node& n) {
    n.integer("seed", {}, {0, 9}, "of the random numbers");
    const Node m = n.map("model", "the network");
    m.integer("channels", {}, {1, 64}, "width");
    m.map("norm", "").choice("kind", {"a", "b"}, {}, "norm kind");
    m.list("layers", "groups of layers");
  };
  EXPECT_EQ(errors_of("# comment\nmodel:\n  norm: {}", read), (Strings{
    "c.yaml:1:1: missing key 'seed': add seed at the top level, an integer in [0, 9] (of the random numbers)",
    "c.yaml:2:1: missing key 'model.channels': add channels in 'model', an integer in [1, 64] (width)",
    "c.yaml:2:1: missing key 'model.layers': add layers in 'model', a list of maps (groups of layers)",
    "c.yaml:3:3: missing key 'model.norm.kind': add kind in 'model.norm', one of a, b (norm kind)"}));
  EXPECT_EQ(errors_of("", read).size(), 4u);
  EXPECT_EQ(errors_of("seed: 1\nmodel: 3", read),
            Strings{"c.yaml:2:8: model: expected a map, got '3'"});  // what would be in it is not missed
  EXPECT_EQ(errors_of("seed: 1\nmodel: none", read), Strings{"c.yaml:2:1: model: expected a map, got none"});
}

TEST(Node, EverythingAtOnceSortedByLine) {
  const std::string yaml =
    "name: [a]\n"                     // 1 wrong type
    "naem: b\n"                       // 2 unknown
    "optim:\n"
    "  learning_rate: fast\n"         // 4 no number
    "  weight_decay: 11\n"            // 5 out of range
    "  weight_decay: 0.1\n"           // 6 duplicate
    "  schedule: {warmup: 0.5, cooldown: 3}\n";      // 7 not whole; unknown
  const Strings e = errors_of(yaml,
                              [](const Node& n) {
                                kSmall(n);
                                kSmall(n);
                              },
                              {"optim.betas=[1]", "nonsense"});  // two passes say nothing twice
  ASSERT_EQ(e.size(), 9u) << testing::PrintToString(e);
  const char* where[] = {
      "c.yaml:1:", "c.yaml:2:", "c.yaml:4:", "c.yaml:5:", "c.yaml:6:", "c.yaml:7:22", "c.yaml:7:27", "command line", "command line"};
  for (size_t i = 0; i < e.size(); i++) EXPECT_TRUE(e[i].starts_with(where[i])) << e[i];
}

TEST(Node, ListOfMaps) {
  const std::string yaml = "layers:\n  - times: 2\n    pattern: [{kind: a}, {kind: b}]\n  - pattern:\n      - kind: c\n";
  const auto read = [](const Node& n, std::string& seen) {
    for (const Node& group : n.list("layers", "")) {
      seen += std::to_string(group.integer("times", 1, {1, 9}, ""));
      for (const Node& layer : group.list("pattern", "")) seen += layer.choice("kind", {"a", "b", "c"}, {}, "");
    }
  };
  std::string seen;
  const ConfigTree t = parsed(yaml);
  read(t.root(), seen);
  EXPECT_EQ(seen, "2ab1c");
  EXPECT_NO_THROW(t.check());
  EXPECT_EQ(t.root().list("layers", "")[1].list("pattern", "")[0].path(), "layers[1].pattern[0]");

  const auto only = [&](const Node& n) { std::string s; read(n, s); };
  EXPECT_EQ(errors_of("layers: [{pattern: [{kind: a, knd: b}]}]", only),
            Strings{"c.yaml:1:31: unknown key 'layers[0].pattern[0].knd'; did you mean 'kind'?"});
  EXPECT_EQ(errors_of("layers: [3]", only), Strings{"c.yaml:1:10: layers[0]: expected a map, got '3'"});
  EXPECT_EQ(errors_of("layers: [{times: 2}]", only).size(), 1u);
  EXPECT_EQ(errors_of("layers: {pattern: []}", only), Strings{"c.yaml:1:1: layers: expected a list of maps, got a map"});
}

TEST(Node, CrossChecksAndOrigins) {
  const ConfigTree t = parsed("model:\n  heads: 12\n  norm: {eps: 1}", {"model.width=100"});
  const Node m = t.root().map("model", "");
  m.integer("heads", {}, {}, "");
  m.integer("width", {}, {}, "");
  m.map("norm", "").number("eps", {}, {}, "");
  EXPECT_EQ(m.where("heads"), "c.yaml:2:10");
  EXPECT_EQ(m.where("width"), "command line");
  EXPECT_EQ(m.where("absent"), "default");
  EXPECT_EQ(m.where(""), "c.yaml:1:1");
  EXPECT_EQ(m.map("embedding", "").where("dropout"), "default");
  EXPECT_TRUE(m.is_text("heads"));
  EXPECT_FALSE(m.is_text("norm"));
  EXPECT_FALSE(m.is_text("absent"));
  m.error("heads", "100 channels are not divisible by 12 heads");
  m.error("heads", "100 channels are not divisible by 12 heads");
  m.map("embedding", "").error("dropout", "too much");          // absent: reported where it would be
  m.error("width", "odd");
  try {
    t.check();
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "c.yaml:1:1: model.embedding.dropout: too much\n"
                 "c.yaml:2:10: model.heads: 100 channels are not divisible by 12 heads\n"
                 "command line: model.width: odd");
  }
}

TEST(Nearest, DamerauLevenshtein) {
  const Strings keys = {"lr", "kind", "weight_decay", "betas", "checkpoint"};
  EXPECT_EQ(nearest("weigth_decay", keys), "weight_decay");
  EXPECT_EQ(nearest("wieght_deacy", keys), "weight_decay");
  EXPECT_EQ(nearest("beta", keys), "betas");
  EXPECT_EQ(nearest("rl", keys), "lr");
  EXPECT_EQ(nearest("KIND", keys), "kind");
  EXPECT_EQ(nearest("x", keys), "");           // every short word is within two edits
  EXPECT_EQ(nearest("eps", keys), "");
  EXPECT_EQ(nearest("momentum", keys), "");
  EXPECT_EQ(nearest("kind", {}), "");
}

}  // namespace
}  // namespace wyvern
