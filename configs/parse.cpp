// From YAML text to our own tree, by way of yaml-cpp's events. yaml-cpp keeps the first of two equal keys, leaves `<<` an
// ordinary key, takes an open quote at the end of the file for a closed one, and expands aliases freely; here each of these
// is an error, or (aliases) a shared value.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "configs/tree.h"

namespace wyvern {
namespace {

using ValuePtr = std::shared_ptr<ConfigValue>;

class Builder : public YAML::EventHandler {
 public:
  Builder(bool command_line, std::vector<ConfigError>& errors) : command_line_(command_line), errors_(errors) {}
  ValuePtr root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++) refuse(mark, "a second document starts here; one file holds one config");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, remember(anchor, make(ConfigValue::null, mark))); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) refuse(mark, "this alias stands inside the value that it refers to");
    add(mark, it->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    check_tag(mark, tag);
    const bool quoted = tag == "!";
    const bool key = !open_.empty() && open_.back().value->kind == ConfigValue::map && !open_.back().has_key;
    const ValuePtr v = make(text == "none" && !quoted && !key ? ConfigValue::null : ConfigValue::scalar, mark);
    v->text = text;
    v->quoted = quoted;
    add(mark, remember(anchor, v));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(ConfigValue::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(ConfigValue::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {                  // a list or map that has not ended yet
    ValuePtr value;
    YAML::Mark mark;
    YAML::anchor_t anchor;
    bool has_key = false, drop = false;      // of a map: between a key and its value; the value of a refused key is dropped
    std::string key;
    Position key_at;
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& message) { throw YAML::ParserException(mark, message); }
  static void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, fmt::format("the tag '{}' is not supported; remove it", shortened(tag)));
  }
  Position position(const YAML::Mark& mark) const { return command_line_ ? Position{} : Position{mark.line + 1, mark.column + 1}; }
  ValuePtr make(ConfigValue::Kind kind, const YAML::Mark& mark) const {
    auto v = std::make_shared<ConfigValue>();
    v->kind = kind;
    v->at = position(mark);
    return v;
  }
  ValuePtr remember(YAML::anchor_t anchor, const ValuePtr& v) {
    if (anchor) anchors_[anchor] = v;
    return v;
  }

  void open(ConfigValue::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    check_tag(mark, tag);
    open_.push_back({.value = make(kind, mark), .mark = mark, .anchor = anchor});
  }
  void close() {
    const Open done = std::move(open_.back());
    open_.pop_back();
    add(done.mark, remember(done.anchor, done.value));
  }

  void add(const YAML::Mark& mark, const ValuePtr& v) {
    if (open_.empty()) {
      root_ = v;
      return;
    }
    Open& parent = open_.back();
    if (parent.value->kind == ConfigValue::list) {
      parent.value->items.push_back(v);
    } else if (!parent.has_key) {
      take_key(parent, mark, *v);
    } else {
      if (!parent.drop) parent.value->entries.push_back({parent.key, parent.key_at, v});
      parent.has_key = false;
    }
  }

  void take_key(Open& map, const YAML::Mark& mark, const ConfigValue& key) {
    if (key.kind != ConfigValue::scalar || key.text.empty()) refuse(mark, "a key must be a word");
    map.has_key = true;
    map.key = key.text;
    map.key_at = position(mark);
    const ConfigValue::Entry* earlier = map.value->find(key.text);
    std::string message;
    if (key.text == "<<")
      message = "merge keys (<<) are not supported; write the keys out";
    else if (key.text.find_first_of(".[]=") != std::string::npos)
      message = fmt::format("key '{}' contains one of . [ ] =; nest maps instead of writing a path", shortened(key.text));
    else if (earlier && !command_line_)
      message = fmt::format("key '{}' is given twice, first on line {}; keep one of them", key.text, earlier->at.line);
    else if (earlier)
      message = fmt::format("key '{}' is given twice in one override; keep one of them", key.text);
    map.drop = !message.empty();
    if (map.drop) errors_.push_back({map.key_at, message});
  }

  const bool command_line_;
  std::vector<ConfigError>& errors_;
  int documents_ = 0;
  ValuePtr root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, ValuePtr> anchors_;
};

// The place of an error, which may lie in the end mark that parse_yaml adds: then the end of the text, where something is missing.
Position place_of(const YAML::Mark& mark, const std::string& yaml) {
  const auto lines = 1 + std::ranges::count(yaml, '\n');
  if (mark.line >= 0 && mark.line < lines - yaml.ends_with('\n')) return {mark.line + 1, mark.column + 1};
  const size_t last = yaml.rfind('\n');
  return {int(lines), int(yaml.size() - (last == std::string::npos ? 0 : last + 1)) + 1};
}

std::string line_of(const std::string& text, int line) {
  std::istringstream in(text);
  std::string s;
  for (int i = 0; i < line; i++)
    if (!std::getline(in, s)) return "";
  return s;
}

// yaml-cpp says "illegal map value" for most mistakes: add the likely cause.
std::string explain(const YAML::Exception& e, Position at, const std::string& yaml) {
  const std::string line = line_of(yaml, at.line);
  if (line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string::npos) return e.msg + "; indent with spaces, not tabs";
  if (e.msg == "illegal document indicator in scalar" || e.msg == "illegal EOF in scalar")
    return "a quoted text is not closed before the end; add its quote";
  if (e.msg == "illegal map value") return e.msg + "; check the indentation, and quote a text that contains ': '";
  if (e.msg == "unknown token" || e.msg.find("anchor is not defined") != std::string::npos)
    return e.msg + "; quote a text that starts with one of @ ` % * & !";
  if (e.msg == "bad file") return "lists and maps are nested too deeply";
  return e.msg;
}

}  // namespace

std::shared_ptr<ConfigValue> parse_yaml(const std::string& yaml, const std::string& name, bool command_line,
                                        std::vector<ConfigError>& errors) {
  Builder builder(command_line, errors);
  // The end mark makes yaml-cpp notice a quote that is still open.
  std::istringstream in(yaml + (yaml.ends_with('\n') ? "...\n" : "\n...\n"));
  try {
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {}
  } catch (const YAML::Exception& e) {
    const Position at = place_of(e.mark, yaml);
    if (command_line) fail(kUsage, "{}: {}", name, explain(e, at, yaml));
    fail(kUsage, "{}:{}:{}: {}", name, at.line, at.column, explain(e, at, yaml));
  }
  if (builder.root()) return builder.root();
  auto empty = std::make_shared<ConfigValue>();
  if (!command_line) empty->at = {1, 1};
  return empty;
}

}  // namespace wyvern
