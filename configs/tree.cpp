#include "configs/tree.h"

#include <algorithm>

namespace wyvern {

const ConfigValue::Entry* ConfigValue::find(std::string_view key) const {
  const auto it = std::ranges::find(entries, key, &Entry::key);
  return it == entries.end() ? nullptr : &*it;
}

void ConfigState::add_error(Position at, std::string message) {
  for (const ConfigError& e : errors)
    if (e.at.line == at.line && e.at.column == at.column && e.message == message) return;
  errors.push_back({at, std::move(message)});
}

void ConfigState::record(const std::string& parent, std::string_view key, ConfigRead read) {
  const auto [it, first] = reads.try_emplace(child_path(parent, key));
  if (first) reads[parent].children.emplace_back(key);
  read.children = std::move(it->second.children);
  if (read.doc.empty()) read.doc = std::move(it->second.doc);      // a later reader need not explain the key again
  it->second = std::move(read);
}

bool ConfigState::is_broken(std::string_view path) const {
  return std::ranges::any_of(broken, [&](const std::string& b) {
    return path.starts_with(b) && (path.size() == b.size() || path[b.size()] == '.' || path[b.size()] == '[');
  });
}

Location ConfigState::locate(std::string_view path) const {
  Position at = root->at;
  if (path.empty()) return {at, true};
  const ConfigValue* v = root.get();
  for (const PathStep& step : parse_path(path)) {
    if (step.index >= 0) {
      if (v->kind != ConfigValue::list || step.index >= int64_t(v->items.size())) return {at, false};
      v = v->items[size_t(step.index)].get();
      at = v->at;
    } else {
      const ConfigValue::Entry* e = v->find(step.key);
      if (!e) return {at, false};
      v = e->value.get();
      at = v->kind == ConfigValue::scalar ? v->at : e->at;    // maps and lists start on the line of their key
    }
  }
  return {at, true};
}

std::string ConfigState::describe(Position at) const {
  return at.line == 0 ? "command line" : fmt::format("{}:{}:{}", name, at.line, at.column);
}

std::string child_path(std::string_view parent, std::string_view key) {
  if (parent.empty() || key.empty() || key[0] == '[') return fmt::format("{}{}", parent, key);
  return fmt::format("{}.{}", parent, key);
}

std::string shortened(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string s(text.substr(0, kLongest));
  for (char& c : s)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text.size() > kLongest ? s + "..." : s;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : separator) + w;
  return s;
}

}  // namespace wyvern
