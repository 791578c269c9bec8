// What a schema pass recorded, written out: the resolved config as YAML, and the reference of all keys as Markdown.
#include <algorithm>

#include "configs/tree.h"

namespace wyvern {
namespace {

constexpr size_t kFlowWidth = 100;       // a longer list is written one element per line
constexpr size_t kCommentColumn = 80;    // comments align at the longest line, but not beyond this column

struct Line { std::string text, origin; };

class Writer {
 public:
  explicit Writer(const ConfigState& state) : state_(state) {}
  std::vector<Line> write() {
    map("", "", "");
    return std::move(lines_);
  }

 private:
  // Every key of the map; the first one follows `lead` ("- " of a list, or the indentation).
  void map(const std::string& path, const std::string& indent, std::string lead) {
    for (const std::string& key : state_.reads.find(path)->second.children) {
      entry(child_path(path, key), lead + key + ":", indent);
      lead = indent;
    }
  }

  void entry(const std::string& path, const std::string& head, const std::string& indent) {
    const ConfigRead& read = state_.reads.find(path)->second;
    const std::string from = origin(path);
    if (read.kind == ConfigRead::scalar) {
      scalar(read, head, indent, from);
    } else if (read.children.empty()) {
      lines_.push_back({head + (read.kind == ConfigRead::map ? " {}" : " []"), from});
    } else {
      lines_.push_back({head, from});
      if (read.kind == ConfigRead::map) map(path, indent + "  ", indent + "  ");
      else for (const std::string& index : read.children) element(child_path(path, index), indent + "  ");
    }
  }

  void element(const std::string& path, const std::string& indent) {
    if (state_.reads.find(path)->second.children.empty()) lines_.push_back({indent + "- {}", origin(path)});
    else map(path, indent + "  ", indent + "- ");
  }

  void scalar(const ConfigRead& read, const std::string& head, const std::string& indent, const std::string& from) {
    const std::string flow = read.value_is_list ? fmt::format("[{}]", joined(read.value)) : joined(read.value);
    if (!read.value_is_list || flow.size() <= kFlowWidth) {
      lines_.push_back({head + " " + flow, from});
      return;
    }
    lines_.push_back({head, from});
    for (const std::string& v : read.value) lines_.push_back({indent + "  - " + v, from});
  }

  std::string origin(const std::string& path) const {
    const Location place = state_.locate(path);
    if (!place.given) return "default";
    return place.at.line == 0 ? "command line" : fmt::format("{}:{}", state_.name, place.at.line);
  }

  const ConfigState& state_;
  std::vector<Line> lines_;
};

std::string escaped(std::string_view s) {
  std::string out;
  for (const char c : s) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// The reference: elements of a list share their keys, so that "layers[0].times" and "layers[1].times" are one row.
class Reference {
 public:
  explicit Reference(const ConfigState& state) : state_(state) {}
  std::string write() {
    rows("", {""});
    return "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n" + out_;
  }

 private:
  const ConfigRead& read(const std::string& path) const { return state_.reads.find(path)->second; }

  // `instances` are the maps that go by the one name `name`.
  void rows(const std::string& name, const std::vector<std::string>& instances) {
    std::vector<std::string> keys;
    for (const std::string& map : instances)
      for (const std::string& key : read(map).children)
        if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    for (const std::string& key : keys) {
      std::vector<std::string> same;
      for (const std::string& map : instances)
        if (std::string path = child_path(map, key); state_.reads.contains(path)) same.push_back(std::move(path));
      key_rows(child_path(name, key), same);
    }
  }

  void key_rows(const std::string& name, const std::vector<std::string>& same) {
    row(name, read(same[0]));
    std::vector<std::string> maps, elements;
    for (const std::string& path : same) {
      if (read(path).kind == ConfigRead::map) maps.push_back(path);
      if (read(path).kind == ConfigRead::list)
        for (const std::string& index : read(path).children) elements.push_back(child_path(path, index));
    }
    rows(name, maps);
    rows(name + "[]", elements);
  }

  void row(const std::string& name, const ConfigRead& r) {
    const bool required = r.otherwise.empty() && r.kind != ConfigRead::map;
    out_ += fmt::format("| `{}` | {} | {} | {} | {} |\n", name, r.type, required ? "required" : escaped(r.otherwise), escaped(r.allowed),
                        escaped(r.doc));
  }

  const ConfigState& state_;
  std::string out_;
};

}  // namespace

std::string ConfigTree::resolved() const {
  std::string out;
  for (const Line& l : Writer(*state_).write()) out += l.text + "\n";
  return out;
}

std::string ConfigTree::resolved_with_origin() const {
  const std::vector<Line> lines = Writer(*state_).write();
  size_t column = 0;
  for (const Line& l : lines) column = std::max(column, std::min(l.text.size(), kCommentColumn));
  std::string out;
  for (const Line& l : lines) out += fmt::format("{:<{}}  # {}\n", l.text, column, l.origin);
  return out;
}

std::string ConfigTree::docs() const { return Reference(*state_).write(); }

}  // namespace wyvern
