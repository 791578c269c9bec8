// ConfigTree: load, override, and the check for keys that nobody read.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "configs/tree.h"

namespace wyvern {
namespace {

std::string read_file(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) fail(kUsage, "{}: this is a folder; give the config file in it", file);
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(kUsage, "{}: cannot open this config: {}; check the path", file, std::strerror(errno));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) fail(kUsage, "{}: cannot read this config: {}", file, std::strerror(errno));
  return text.str();
}

std::string without_indices(const std::string& path) {
  std::string out;
  bool inside = false;
  for (const char c : path) {
    if (c == '[') inside = true;
    if (!inside) out += c;
    if (c == ']') inside = false;
  }
  return out;
}

// The one map that knows the key, or empty: `kind` and `bias` live in many maps, and naming one of them would mislead.
std::string only_home(const ConfigState& state, const std::string& key) {
  std::map<std::string, std::string> homes;      // path without indices -> first path
  for (const auto& [path, read] : state.reads)
    if (std::ranges::find(read.children, key) != read.children.end()) homes.try_emplace(without_indices(path), path);
  if (homes.size() != 1) return "";
  const std::string& path = homes.begin()->second;
  return path.empty() ? "the top level" : fmt::format("'{}'", path);
}

std::string unknown_key(const ConfigState& state, const std::string& map, const ConfigRead& read, const std::string& key) {
  const std::string path = child_path(map, shortened(key));
  if (const std::string near = nearest(key, read.children); !near.empty())
    return fmt::format("unknown key '{}'; did you mean '{}'?", path, near);
  if (const std::string home = only_home(state, key); !home.empty())
    return fmt::format("unknown key '{}'; it belongs to {}", path, home);
  const std::string name = map.empty() ? "the top level" : fmt::format("'{}'", map);
  if (read.children.empty()) return fmt::format("unknown key '{}'; {} has no keys", path, name);
  return fmt::format("unknown key '{}'; {} has the keys {}", path, name, joined(read.children));
}

// A map that nobody entered is one unknown key; what stands in it is not listed.
void find_unread(const ConfigState& state, const std::string& path, const ConfigValue& v, std::vector<ConfigError>& errors) {
  const auto read = state.reads.find(path);
  if (read == state.reads.end()) return;
  if (read->second.kind == ConfigRead::list)
    for (size_t i = 0; i < v.items.size(); i++) find_unread(state, child_path(path, fmt::format("[{}]", i)), *v.items[i], errors);
  if (read->second.kind != ConfigRead::map) return;
  for (const ConfigValue::Entry& e : v.entries) {
    const std::string child = child_path(path, e.key);
    if (state.reads.contains(child)) find_unread(state, child, *e.value, errors);
    else errors.push_back({e.at, unknown_key(state, path, read->second, e.key)});
  }
}

}  // namespace

ConfigTree ConfigTree::load(const std::string& file, const std::vector<std::string>& overrides) {
  return parse(read_file(file), file, overrides);
}

ConfigTree ConfigTree::parse(const std::string& yaml, const std::string& name, const std::vector<std::string>& overrides) {
  ConfigTree tree;
  tree.state_ = std::make_shared<ConfigState>();
  ConfigState& state = *tree.state_;
  state.name = name;
  state.root = parse_yaml(yaml, name, false, state.errors);
  if (state.root->kind != ConfigValue::map && state.root->kind != ConfigValue::null)
    fail(kUsage, "{}: expected a map of keys, as in 'seed: 1'", state.describe(state.root->at));
  state.root->at = {1, 1};
  for (const std::string& o : overrides) apply_override(state, o);
  state.reads[""];
  return tree;
}

Node ConfigTree::root() const {
  Node node;
  node.state_ = state_;
  node.value_ = state_->root;
  return node;
}

bool ConfigTree::failed() const { return !state_->errors.empty(); }

void ConfigTree::check() const {
  std::vector<ConfigError> errors = state_->errors;
  find_unread(*state_, "", *state_->root, errors);
  if (errors.empty()) return;
  const auto line = [](const ConfigError& e) { return std::pair(e.at.line == 0 ? INT_MAX : e.at.line, e.at.column); };   // overrides last
  std::ranges::stable_sort(errors, {}, line);
  std::vector<std::string> lines;
  for (const ConfigError& e : errors) lines.push_back(fmt::format("{}: {}", state_->describe(e.at), e.message));
  throw Error(kUsage, joined(lines, "\n"));
}

}  // namespace wyvern
