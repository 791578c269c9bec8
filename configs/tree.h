// What stands behind Node: the parsed tree, immutable once built, and the record of one schema pass over it. Internal to
// configs/.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "configs/node.h"

namespace wyvern {

struct Position { int line = 0, column = 0; };      // 1-based; line 0 = the command line
struct Location { Position at; bool given; };       // of a value; when it is not given: of the innermost map that is

struct ConfigValue {
  enum Kind : uint8_t { null, scalar, list, map };
  struct Entry { std::string key; Position at; std::shared_ptr<ConfigValue> value; };

  Kind kind = null;
  Position at;
  std::string text;                                    // of a scalar; of a null "none" when it was spelled so
  bool quoted = false;
  std::vector<std::shared_ptr<ConfigValue>> items;     // of a list
  std::vector<Entry> entries;                          // of a map, in the order of the file

  const Entry* find(std::string_view key) const;
};

// One key that was read: for the resolved config, the reference, and to know which keys nobody read.
struct ConfigRead {
  enum Kind : uint8_t { scalar, list, map } kind = map;
  std::string type, otherwise, allowed, doc;           // otherwise = the default as YAML, empty = required
  std::vector<std::string> value;                      // as YAML: one element of a scalar, n of a list of scalars
  bool value_is_list = false;
  std::vector<std::string> children;                   // of a map its keys, of a list [0] [1] ..., in the order of the first read
};

struct ConfigError { Position at; std::string message; };

// One step of "model.layers[0].times": a key, or an index when index >= 0.
struct PathStep { std::string key; int64_t index = -1; };

struct ConfigState {
  std::string name;                                    // of the file
  std::shared_ptr<ConfigValue> root;
  std::map<std::string, ConfigRead, std::less<>> reads;     // by path; the root is ""
  std::vector<ConfigError> errors;
  std::set<std::string> broken;                        // maps and lists that were something else: their keys are not missed

  void add_error(Position at, std::string message);    // once, however often the schema passes
  void record(const std::string& parent, std::string_view key, ConfigRead read);
  bool is_broken(std::string_view path) const;         // this path or one above it
  Location locate(std::string_view path) const;
  std::string describe(Position at) const;             // "configs/moe.yaml:31:7" or "command line"
};

std::string child_path(std::string_view parent, std::string_view key);
std::string shortened(std::string_view text);          // for messages: one line, at most some 60 characters
std::string joined(const std::vector<std::string>& words, const char* separator = ", ");

// parse.cpp. Syntax errors throw; what the tree can survive (duplicate keys) goes to `errors`. An empty text is a null.
std::shared_ptr<ConfigValue> parse_yaml(const std::string& yaml, const std::string& name, bool command_line,
                                        std::vector<ConfigError>& errors);

// override.cpp
std::vector<PathStep> parse_path(std::string_view path);                       // throws Error(kUsage)
void apply_override(ConfigState& state, const std::string& assignment);        // errors go to the state

}  // namespace wyvern
