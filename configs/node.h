// Node: the one reader of YAML, and the schema at the same time. Whoever reads a key states its type, range, default and
// meaning right there; the tree records what was read, so that one pass over the configuration yields every error at
// once (with file:line:column), the resolved config, and the reference of all keys.
//
//   ConfigTree tree = ConfigTree::load("configs/smoke.yaml", {"optim.clip=0.5"});
//   Node model = tree.root().map("model", "the network");
//   int64_t C = model.integer("channels", {}, {1, 1 << 20}, "width of the residual stream");      // {} = required
//   tree.check();                       // throws Error(kUsage) listing everything that is wrong, unread keys included
//
// After an error a read returns the default (or a value inside the range; a misspelt choice returns the nearest one), so the
// pass goes on. Nothing is allocated before check() has passed. The same keys may be read again: by several layers that
// share them, or by a second pass. yaml-cpp is used in parse.cpp and nowhere else.
#pragma once
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"

namespace wyvern {

struct IntRange { int64_t low = INT64_MIN, high = INT64_MAX; };
struct Range { double low = -1e300, high = 1e300; bool open_low = false; };   // open_low: low itself is outside

struct ConfigValue;      // one node of the parsed tree (scalar, list or map) with its origin
struct ConfigState;      // errors and records, shared by all nodes of a tree

class Node {
 public:
  // Scalars. Numbers: decimal, 1e3 and 1_000 are fine for integers when integral; 010, 0x10, nan, inf, quoted numbers are not.
  // Booleans: true false yes no on off. `none`, ~, null and nothing are null: an error, except that `none` is a word like any
  // other where the schema knows it: as one of the choices, or as the default of a text.
  int64_t     integer(std::string_view key, std::optional<int64_t> def, IntRange, std::string_view doc) const;
  double      number (std::string_view key, std::optional<double> def, Range, std::string_view doc) const;
  bool        boolean(std::string_view key, std::optional<bool> def, std::string_view doc) const;
  std::string text   (std::string_view key, std::optional<std::string> def, std::string_view doc) const;
  std::string choice (std::string_view key, const std::vector<const char*>& allowed, std::optional<std::string> def,
                      std::string_view doc) const;
  // `none` in the file (or in the default) gives nullopt.
  std::optional<int64_t> integer_or_none(std::string_view key, std::optional<int64_t> def, IntRange, std::string_view doc) const;
  std::optional<double>  number_or_none (std::string_view key, std::optional<double> def, Range, std::string_view doc) const;

  // Lists of scalars. For texts one scalar reads as a list of one.
  std::vector<double>      numbers(std::string_view key, std::optional<std::vector<double>> def, std::string_view doc) const;
  std::vector<std::string> texts  (std::string_view key, std::optional<std::vector<std::string>> def, std::string_view doc) const;

  Node map(std::string_view key, std::string_view doc) const;                 // absent = an empty map: every read gives its default
  std::vector<Node> list(std::string_view key, std::string_view doc) const;   // list of maps; absent = error
  bool has(std::string_view key) const;                                       // present and not null; does not count as read
  bool is_text(std::string_view key) const;                                   // a scalar, not a map (recompute: none | {every: 2})

  void error(std::string_view key, const std::string& message) const;         // a failed cross-check, reported at that key ("": this map)
  const std::string& path() const { return path_; }                           // "model.layers[0].pattern[1].attention"
  std::string where(std::string_view key) const;                              // "configs/moe.yaml:31:7", "command line", or "default"

 private:
  friend class ConfigTree;
  friend class ConfigReading;
  std::shared_ptr<ConfigState> state_;
  std::shared_ptr<ConfigValue> value_;    // null: absent map
  std::string path_;
};

class ConfigTree {
 public:
  ConfigTree() = default;                       // empty: only to be assigned to
  // Later overrides win over earlier ones and over the file. "a.b=value" or "layers[0].times=3"; the value is YAML.
  // An override may add a key that the file left out; a key nobody reads is an error from check(). Only what cannot be read
  // as YAML at all throws here; duplicate keys and bad overrides wait for check().
  static ConfigTree load(const std::string& file, const std::vector<std::string>& overrides = {});
  static ConfigTree parse(const std::string& yaml, const std::string& name, const std::vector<std::string>& overrides = {});
  Node root() const;
  bool failed() const;                          // any error so far
  void check() const;                           // unread keys become errors (with the nearest valid name); throws when there is any
  std::string resolved() const;                 // YAML of every value that was read, defaults filled in; parses back to the same
  std::string resolved_with_origin() const;     // the same, each line with `# default`, `# file:line` or `# command line`
  std::string docs() const;                     // Markdown table: key, type, default, range, meaning

 private:
  std::shared_ptr<ConfigState> state_;
};

// The nearest of `candidates` within Damerau-Levenshtein distance 2 (1 for up to three letters, a third of a long word), or
// empty. Case counts for nothing, nor does - against _.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace wyvern
