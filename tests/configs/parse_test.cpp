// What surrounds a schema pass: overrides from the command line, and files that are no config.
#include "tests/configs/errors_of.h"

namespace wyvern {
namespace {

// ---- overrides -------------------------------------------------------------------------------------------------------
TEST(Node, OverridesWinInOrder) {
  const ConfigTree t = parsed("a: {b: 1, c: 2}\nlayers: [{times: 3}, {times: 4}]\nx: none",
                              {"a.b=5", "a.b=6", "layers[1].times=1e1", "x.y.z=[1, 2]", "p=q=r"});
  const Node n = t.root();
  EXPECT_EQ(n.map("a", "").integer("b", {}, {}, ""), 6);
  EXPECT_EQ(n.map("a", "").integer("c", {}, {}, ""), 2);
  EXPECT_EQ(n.list("layers", "")[0].integer("times", {}, {}, ""), 3);
  EXPECT_EQ(n.list("layers", "")[1].integer("times", {}, {}, ""), 10);
  EXPECT_EQ(n.map("x", "").map("y", "").numbers("z", {}, "").size(), 2u);
  EXPECT_EQ(n.text("p", {}, ""), "q=r");
  EXPECT_NO_THROW(t.check());
}

TEST(Node, OverridesDoNotLeakThroughAliases) {
  const ConfigTree t = parsed("a: &shared {v: 1}\nb: *shared", {"b.v=2"});
  EXPECT_EQ(t.root().map("a", "").integer("v", {}, {}, ""), 1);
  EXPECT_EQ(t.root().map("b", "").integer("v", {}, {}, ""), 2);
}

TEST(Node, BadOverridesAreQuoted) {
  const std::string yaml = "a: 1\nl: [{t: 1}]\nm: {k: 1}";
  const auto read = [](const Node& n) {
    n.integer("a", {}, {}, "");
    n.map("m", "").integer("k", {}, {}, "");
    n.list("l", "").at(0).integer("t", {}, {}, "");
  };
  const std::pair<const char*, const char*> cases[] = {{"a", "'=' is missing"},
                                                       {"=1", "a key is missing"},
                                                       {"m..k=1", "a key is missing"},
                                                       {"m.=1", "a key is missing"},
                                                       {".a=1", "a key is missing"},
                                                       {"l[x].t=1", "'[x]' is not an index"},
                                                       {"l[0.t=1", "is not an index"},
                                                       {"l[-1].t=1", "is not an index"},
                                                       {"l[].t=1", "is not an index"},
                                                       {"l[0]t=1", "'.' is missing"},
                                                       {"l]=1", "is not a key"},
                                                       {"a.b=1", "'a' is the value '1', not a map"},
                                                       {"l.t=1", "'l' is a list of 1"},
                                                       {"l[1].t=1", "[1] is out of range: 'l' has 1 element,"},
                                                       {"m[0]=1", "'m' is not a list"},
                                                       {"new[0]=1", "'new' is not a list"},
                                                       {"l[99999999999999999999]=1", "is not an index"},
                                                       {"m.k=[1", "its value: "},
                                                       {"m.k=\"x", "quoted text is not closed"},
                                                       {"m.k=*x", "quote a text that starts with"}};
  for (const auto& [override, message] : cases)
    EXPECT_TRUE(one_error(errors_of(yaml, read, {override}), {std::string("command line: override '") + override + "': ", message}))
        << override;
  EXPECT_TRUE(one_error(errors_of(yaml, read, {"m.k=x"}), {"command line: m.k: expected an integer, got 'x'"}));
  std::string deep = "a";
  for (int i = 0; i < 40'000; i++) deep += ".a";
  EXPECT_TRUE(one_error(errors_of(yaml, read, {deep + "=1"}), {"longer than 64 steps"}));
}

// ---- files that are no config ----------------------------------------------------------------------------------------
TEST(Node, SyntaxErrorsNameThePlace) {
  const auto none = [](const Node&) {};
  const std::pair<const char*, const char*> cases[] = {{"a: [1, 2\n", "c.yaml:2:1: end of sequence"},
                                                       {"a: [1, 2", "c.yaml:1:9: end of sequence"},
                                                       {"a: b: c", "c.yaml:1:5: illegal map value; check the indentation"},
                                                       {"a: 1\n b: 2", "c.yaml:2:3"},
                                                       {"a: \"x\nb: 1\n", "a quoted text is not closed"},
                                                       {"a: 'x", "a quoted text is not closed"},
                                                       {"a: @x", "c.yaml:1:4: "},
                                                       {"a: *nope", "c.yaml:1:4: "},
                                                       {"a: &x [*x]", "inside the value that it refers to"},
                                                       {"? [a]\n: 1", "a key must be a word"},
                                                       {"~: 1", "a key must be a word"},
                                                       {"a: 1\n---\nb: 2", "c.yaml:2:1: a second document"},
                                                       {"a: !!str 5", "tag"},
                                                       {"- a", "c.yaml:1:1: expected a map of keys"},
                                                       {"just text", "expected a map of keys"}};
  for (const auto& [yaml, message] : cases) EXPECT_TRUE(one_error(errors_of(yaml, none), {"c.yaml:", message})) << yaml;
  EXPECT_THROW(ConfigTree::load("no/such/file.yaml"), Error);
  EXPECT_TRUE(one_error(errors_of("", [](const Node&) { ConfigTree::load(WYVERN_SOURCE); }), {"is a folder"}));
}

TEST(Node, NestingBombsAreErrors) {
  const auto none = [](const Node&) {};
  std::string flow = "a: ", block, dashes = "a:\n";
  for (int i = 0; i < 20'000; i++) flow += i % 2 ? "[" : "{b: ", dashes += "- ";
  for (int i = 0; i < 3'000; i++) block += std::string(size_t(i), ' ') + "a:\n";
  EXPECT_TRUE(one_error(errors_of(flow, none), {"c.yaml:1:", "nested too deeply"}));
  EXPECT_TRUE(one_error(errors_of(dashes, none), {"c.yaml:2:", "nested too deeply"}));
  EXPECT_TRUE(one_error(errors_of(block, none), {"nested too deeply"}));
  std::string laughs = "a0: &a0 [x, x]\n";        // 2^60 values when every alias is copied
  for (int i = 1; i < 60; i++) laughs += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  EXPECT_EQ(errors_of(laughs, none).size(), 60u);      // unknown keys, at once
}

}  // namespace
}  // namespace wyvern
