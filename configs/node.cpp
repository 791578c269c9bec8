#include "configs/node.h"

#include <algorithm>

#include "configs/scalar.h"
#include "configs/tree.h"

namespace wyvern {
namespace {

const char* article(std::string_view noun) { return noun.starts_with("i") ? "an" : "a"; }

std::string got(const ConfigValue& v) {
  if (v.kind == ConfigValue::map) return "a map";
  if (v.kind == ConfigValue::list) return "a list";
  if (v.kind == ConfigValue::null) return v.text.empty() ? "nothing" : v.text;
  return fmt::format("'{}'", shortened(v.text));
}

// [1, 8], >= 0, (0, 1], or "" for any.
std::string interval(std::string low, std::string high, bool open_low) {
  if (low.empty() && high.empty()) return "";
  if (high.empty()) return fmt::format("{} {}", open_low ? ">" : ">=", low);
  if (low.empty()) return fmt::format("<= {}", high);
  return fmt::format("in {}{}, {}]", open_low ? "(" : "[", low, high);
}
std::string interval(IntRange r) {
  return interval(r.low == INT64_MIN ? "" : std::to_string(r.low), r.high == INT64_MAX ? "" : std::to_string(r.high), false);
}
std::string interval(Range r) {
  return interval(r.low <= -1e300 ? "" : fmt::format("{}", r.low), r.high >= 1e300 ? "" : fmt::format("{}", r.high), r.open_low);
}

bool inside(int64_t v, IntRange r) { return v >= r.low && v <= r.high; }
bool inside(double v, Range r) { return (r.open_low ? v > r.low : v >= r.low) && v <= r.high; }

// What a failed read returns when there is no default.
int64_t some_value(IntRange r) { return std::clamp<int64_t>(0, r.low, r.high); }
double some_value(Range r) {
  const double v = std::clamp(0.0, r.low, r.high);
  return inside(v, r) ? v : std::min(r.high, r.low + 1);
}

std::string yaml(int64_t v) { return std::to_string(v); }
std::string yaml(double v) { return yaml_number(v); }
std::optional<int64_t> parse(const std::string& word, std::string& hint, IntRange) { return parse_integer(word, hint); }
std::optional<double> parse(const std::string& word, std::string& hint, Range) { return parse_number(word, hint); }

template <class T> std::string yaml_or(const std::optional<T>& v, const char* otherwise) { return v ? yaml(*v) : otherwise; }

}  // namespace

// ---- one read of one key: find it, record it, say what is wrong with it ----------------------------------------------
class ConfigReading {
 public:
  ConfigReading(const Node& node, std::string_view key, ConfigRead::Kind kind, const char* type, std::string otherwise, std::string allowed,
                std::string_view doc)
      : state_(*node.state_), parent_(node.path_), key_(key), path_(child_path(parent_, key)) {
    read_.kind = kind;
    read_.type = type;
    read_.otherwise = std::move(otherwise);
    read_.allowed = std::move(allowed);
    read_.doc = doc;
    if (node.value_)
      if (const ConfigValue::Entry* e = node.value_->find(key)) value_ = e->value;
    state_.record(parent_, key_, read_);
    if (!value_ && read_.otherwise.empty() && kind != ConfigRead::map) missing();
  }

  const std::string& path() const { return path_; }
  const std::shared_ptr<ConfigValue>& value() const { return value_; }      // null: absent

  void wrong(const std::string& hint = "") {
    state_.add_error(state_.locate(path_).at,
                     fmt::format("{}: expected {}, got {}{}{}", path_, expected(), got(*value_), hint.empty() ? "" : "; ", hint));
    if (read_.kind != ConfigRead::scalar) state_.broken.insert(path_);
  }
  void wrong_element(size_t i, const char* noun, const std::string& hint = "") {
    const ConfigValue& v = *value_->items[i];
    state_.add_error(v.at, fmt::format("{}[{}]: expected a {}, got {}{}{}", path_, i, noun, got(v), hint.empty() ? "" : "; ", hint));
  }
  // What the resolved config says.
  void resolve(std::vector<std::string> value, bool is_list = false) {
    read_.value = std::move(value);
    read_.value_is_list = is_list;
    state_.record(parent_, key_, read_);
  }

 private:
  std::string expected() const {
    if (read_.type == "choice") return "one of " + read_.allowed;
    return fmt::format("{} {}{}{}", article(read_.type), read_.type, read_.allowed.empty() ? "" : " ", read_.allowed);
  }
  void missing() {
    if (state_.is_broken(parent_)) return;
    const std::string place = parent_.empty() ? "at the top level" : fmt::format("in '{}'", parent_);
    state_.add_error(state_.locate(parent_).at,
                     fmt::format("missing key '{}': add {} {}, {} ({})", path_, key_, place, expected(), read_.doc));
  }

  ConfigState& state_;
  const std::string parent_, key_, path_;
  std::shared_ptr<ConfigValue> value_;
  ConfigRead read_;
};

// ---- numbers and booleans --------------------------------------------------------------------------------------------
namespace {

// Null when it is no such number; the hint may then say why.
template <class T, class R>
std::optional<T> number_in(const ConfigValue& v, R range, std::string& hint) {
  if (v.kind != ConfigValue::scalar) return {};
  const std::optional<T> x = parse(v.text, hint, range);
  if (v.quoted) hint = x ? "remove the quotes" : "";
  else if (x) hint.clear();
  return x && !v.quoted && inside(*x, range) ? x : std::nullopt;
}

template <class T, class R>
T required_number(ConfigReading reading, std::optional<T> def, R range) {
  std::optional<T> v;
  std::string hint;
  if (const ConfigValue* given = reading.value().get()) {
    v = number_in<T>(*given, range, hint);
    if (!v) reading.wrong(hint);
  }
  if (!v) v = def ? *def : some_value(range);
  reading.resolve({yaml(*v)});
  return *v;
}

template <class T, class R>
std::optional<T> optional_number(ConfigReading reading, std::optional<T> def, R range) {
  std::optional<T> v = def;
  std::string hint;
  if (const ConfigValue* given = reading.value().get()) {
    v = number_in<T>(*given, range, hint);
    if (!v && given->kind != ConfigValue::null) reading.wrong(hint);
  }
  reading.resolve({yaml_or(v, "none")});
  return v;
}

}  // namespace

int64_t Node::integer(std::string_view key, std::optional<int64_t> def, IntRange range, std::string_view doc) const {
  return required_number<int64_t>({*this, key, ConfigRead::scalar, "integer", yaml_or(def, ""), interval(range), doc}, def, range);
}
double Node::number(std::string_view key, std::optional<double> def, Range range, std::string_view doc) const {
  return required_number<double>({*this, key, ConfigRead::scalar, "number", yaml_or(def, ""), interval(range), doc}, def, range);
}
std::optional<int64_t> Node::integer_or_none(std::string_view key, std::optional<int64_t> def, IntRange range, std::string_view doc) const {
  return optional_number<int64_t>({*this, key, ConfigRead::scalar, "integer or none", yaml_or(def, "none"), interval(range), doc}, def,
                                  range);
}
std::optional<double> Node::number_or_none(std::string_view key, std::optional<double> def, Range range, std::string_view doc) const {
  return optional_number<double>({*this, key, ConfigRead::scalar, "number or none", yaml_or(def, "none"), interval(range), doc}, def,
                                 range);
}

bool Node::boolean(std::string_view key, std::optional<bool> def, std::string_view doc) const {
  const auto word = [](bool b) { return b ? "true" : "false"; };
  ConfigReading reading(*this, key, ConfigRead::scalar, "boolean", def ? word(*def) : "", "", doc);
  bool result = def.value_or(false);
  if (const ConfigValue* v = reading.value().get()) {
    std::string hint;
    const std::optional<bool> b = v->kind == ConfigValue::scalar ? parse_boolean(v->text, hint) : std::nullopt;
    if (!b || v->quoted) reading.wrong(b ? "remove the quotes" : hint);
    else result = *b;
  }
  reading.resolve({word(result)});
  return result;
}

// ---- texts -----------------------------------------------------------------------------------------------------------
std::string Node::text(std::string_view key, std::optional<std::string> def, std::string_view doc) const {
  const auto written = [&](const std::string& s) { return s == "none" && def == "none" ? s : yaml_text(s); };
  ConfigReading reading(*this, key, ConfigRead::scalar, "text", def ? written(*def) : "", "", doc);
  std::string result = def.value_or("");
  if (const ConfigValue* v = reading.value().get()) {
    if (v->kind == ConfigValue::scalar) result = v->text;
    else if (v->kind != ConfigValue::null) reading.wrong();
    else if (def == "none" && !v->text.empty()) result = *def;
    else reading.wrong(v->text.empty() ? "an empty text is \"\"" : "quote it if it is meant as a text");
  }
  reading.resolve({written(result)});
  return result;
}

std::string Node::choice(std::string_view key, const std::vector<const char*>& allowed, std::optional<std::string> def,
                         std::string_view doc) const {
  const std::vector<std::string> words(allowed.begin(), allowed.end());
  const auto known = [&](std::string_view w) { return std::ranges::find(words, w) != words.end(); };
  ConfigReading reading(*this, key, ConfigRead::scalar, "choice", def.value_or(""), joined(words), doc);
  std::string result = def.value_or(words.at(0));
  if (const ConfigValue* v = reading.value().get()) {
    std::string hint, word = v->kind == ConfigValue::map || v->kind == ConfigValue::list ? "" : v->text;
    if (const std::optional<bool> b = parse_boolean(word, hint); b && !v->quoted && !known(word))
      word = *b ? "true" : "false";  // bias: yes
    const std::string near = known(word) || word.empty() ? "" : nearest(word, words);
    if (known(word)) result = word;
    else reading.wrong(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
    if (!near.empty()) result = near;
  }
  reading.resolve({result});
  return result;
}

// ---- lists -----------------------------------------------------------------------------------------------------------
std::vector<double> Node::numbers(std::string_view key, std::optional<std::vector<double>> def, std::string_view doc) const {
  const auto written = [](const std::vector<double>& list) {
    std::vector<std::string> out;
    for (const double x : list) out.push_back(yaml_number(x));
    return out;
  };
  ConfigReading reading(*this, key, ConfigRead::scalar, "list of numbers", def ? fmt::format("[{}]", joined(written(*def))) : "", "", doc);
  std::vector<double> result = def.value_or(std::vector<double>());
  if (const ConfigValue* v = reading.value().get()) {
    if (v->kind == ConfigValue::list) {
      result.clear();
      for (size_t i = 0; i < v->items.size(); i++) {
        std::string hint;
        const std::optional<double> x = number_in<double>(*v->items[i], Range{}, hint);
        if (!x) reading.wrong_element(i, "number", hint);
        result.push_back(x.value_or(0));
      }
    } else {
      reading.wrong();
    }
  }
  reading.resolve(written(result), true);
  return result;
}

std::vector<std::string> Node::texts(std::string_view key, std::optional<std::vector<std::string>> def, std::string_view doc) const {
  const auto written = [](const std::vector<std::string>& list) {
    std::vector<std::string> out;
    for (const std::string& x : list) out.push_back(yaml_text(x));
    return out;
  };
  ConfigReading reading(*this, key, ConfigRead::scalar, "list of texts", def ? fmt::format("[{}]", joined(written(*def))) : "", "", doc);
  std::vector<std::string> result = def.value_or(std::vector<std::string>());
  if (const ConfigValue* v = reading.value().get()) {
    if (v->kind == ConfigValue::list) {
      result.clear();
      for (size_t i = 0; i < v->items.size(); i++) {
        if (v->items[i]->kind != ConfigValue::scalar) reading.wrong_element(i, "text");
        result.push_back(v->items[i]->text);
      }
    } else if (v->kind == ConfigValue::scalar) {
      result = {v->text};
    } else {
      reading.wrong();
    }
  }
  reading.resolve(written(result), true);
  return result;
}

// ---- maps ------------------------------------------------------------------------------------------------------------
Node Node::map(std::string_view key, std::string_view doc) const {
  ConfigReading reading(*this, key, ConfigRead::map, "map", "", "", doc);
  Node child;
  child.state_ = state_;
  child.path_ = reading.path();
  if (const std::shared_ptr<ConfigValue>& v = reading.value()) {
    if (v->kind == ConfigValue::map) child.value_ = v;
    else if (v->kind != ConfigValue::null || !v->text.empty()) reading.wrong();
  }
  return child;
}

std::vector<Node> Node::list(std::string_view key, std::string_view doc) const {
  ConfigReading reading(*this, key, ConfigRead::list, "list of maps", "", "", doc);
  std::vector<Node> nodes;
  const std::shared_ptr<ConfigValue>& v = reading.value();
  if (v && v->kind != ConfigValue::list) reading.wrong();
  if (!v || v->kind != ConfigValue::list) return nodes;
  for (size_t i = 0; i < v->items.size(); i++) {
    const std::shared_ptr<ConfigValue>& item = v->items[i];
    if (item->kind != ConfigValue::map) {
      reading.wrong_element(i, "map");
      continue;
    }
    const std::string index = fmt::format("[{}]", i);
    state_->record(reading.path(), index, {.type = "map"});
    Node node;
    node.state_ = state_;
    node.value_ = item;
    node.path_ = child_path(reading.path(), index);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

bool Node::has(std::string_view key) const {
  const ConfigValue::Entry* e = value_ ? value_->find(key) : nullptr;
  return e && e->value->kind != ConfigValue::null;
}
bool Node::is_text(std::string_view key) const {
  const ConfigValue::Entry* e = value_ ? value_->find(key) : nullptr;
  return e && (e->value->kind == ConfigValue::scalar || e->value->kind == ConfigValue::null);
}

void Node::error(std::string_view key, const std::string& message) const {
  const std::string path = child_path(path_, key);
  state_->add_error(state_->locate(path).at, path.empty() ? message : fmt::format("{}: {}", path, message));
}
std::string Node::where(std::string_view key) const {
  const Location place = state_->locate(child_path(path_, key));
  return place.given ? state_->describe(place.at) : "default";
}

}  // namespace wyvern
