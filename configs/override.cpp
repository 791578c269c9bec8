// Overrides: "model.layers[0].times=3". The tree is immutable, so an override copies the maps and lists on its way and
// shares the rest: a value that an alias made common changes in one place only.
#include <charconv>

#include "configs/tree.h"

namespace wyvern {
namespace {

using ValuePtr = std::shared_ptr<ConfigValue>;

constexpr size_t kDeepest = 64;      // steps of a path

ValuePtr with(const ValuePtr& old, const std::vector<PathStep>& steps, size_t i, const std::string& walked, const ValuePtr& value);

ValuePtr with_key(const ValuePtr& old, const std::vector<PathStep>& steps, size_t i, const std::string& walked, const ValuePtr& value) {
  if (old->kind == ConfigValue::scalar)
    fail(kUsage, "'{}' is the value '{}', not a map: it has no key '{}'", walked, shortened(old->text), steps[i].key);
  if (old->kind == ConfigValue::list)
    fail(kUsage, "'{}' is a list of {}: name an element first, as in {}[0].{}", walked, old->items.size(), walked, steps[i].key);
  auto map = std::make_shared<ConfigValue>(*old);
  map->kind = ConfigValue::map;
  const std::string path = child_path(walked, steps[i].key);
  for (ConfigValue::Entry& e : map->entries)
    if (e.key == steps[i].key) {
      if (i + 1 == steps.size()) e.at = {};
      e.value = with(e.value, steps, i + 1, path, value);
      return map;
    }
  map->entries.push_back({steps[i].key, {}, with(std::make_shared<ConfigValue>(), steps, i + 1, path, value)});
  return map;
}

ValuePtr with_index(const ValuePtr& old, const std::vector<PathStep>& steps, size_t i, const std::string& walked, const ValuePtr& value) {
  const int64_t index = steps[i].index;
  if (old->kind != ConfigValue::list) fail(kUsage, "'{}' is not a list: [{}] selects nothing", walked, index);
  if (index >= int64_t(old->items.size()))
    fail(kUsage, "[{}] is out of range: '{}' has {} element{}, counted from 0", index, walked, old->items.size(),
         old->items.size() == 1 ? "" : "s");
  auto list = std::make_shared<ConfigValue>(*old);
  ValuePtr& item = list->items[size_t(index)];
  item = with(item, steps, i + 1, child_path(walked, fmt::format("[{}]", index)), value);
  return list;
}

// A copy of `old` in which steps[i..] lead to `value`; `walked` is the path to `old`.
ValuePtr with(const ValuePtr& old, const std::vector<PathStep>& steps, size_t i, const std::string& walked, const ValuePtr& value) {
  if (i == steps.size()) return value;
  return steps[i].index < 0 ? with_key(old, steps, i, walked, value) : with_index(old, steps, i, walked, value);
}

// Takes "[12]" from the front of `rest`.
int64_t take_index(std::string_view& rest) {
  const size_t end = rest.find(']');
  int64_t index = -1;
  const std::string_view digits = rest.substr(1, end == std::string_view::npos ? end : end - 1);
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (end == std::string_view::npos || code != std::errc() || stop != digits.data() + digits.size() || index < 0)
    fail(kUsage, "'{}' is not an index; write key[0]", shortened(rest.substr(0, end == std::string_view::npos ? end : end + 1)));
  rest.remove_prefix(end + 1);
  return index;
}

}  // namespace

std::vector<PathStep> parse_path(std::string_view path) {
  std::vector<PathStep> steps;
  std::string_view rest = path;
  do {
    const std::string_view key = rest.substr(0, rest.find_first_of(".["));
    if (key.empty()) fail(kUsage, "a key is missing in the path '{}'; write a.b or a[0].b", shortened(path));
    if (key.find_first_of("] \t\n") != std::string_view::npos) fail(kUsage, "'{}' is not a key; write a.b or a[0].b", shortened(key));
    steps.push_back({std::string(key)});
    rest.remove_prefix(key.size());
    while (!rest.empty() && rest[0] == '[') steps.push_back({"", take_index(rest)});
    if (steps.size() > kDeepest) fail(kUsage, "the path is longer than {} steps", kDeepest);
    if (rest.empty()) return steps;
    if (rest[0] != '.') fail(kUsage, "'.' is missing before '{}'; write a[0].b", shortened(rest));
    rest.remove_prefix(1);
  } while (true);
}

void apply_override(ConfigState& state, const std::string& assignment) {
  const std::string name = fmt::format("override '{}'", shortened(assignment));
  try {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) fail(kUsage, "'=' is missing; write key=value, as in optim.clip=0.5");
    const std::vector<PathStep> steps = parse_path(std::string_view(assignment).substr(0, equals));
    std::vector<ConfigError> errors;
    const ValuePtr value = parse_yaml(assignment.substr(equals + 1), "its value", true, errors);
    for (const ConfigError& e : errors) state.add_error({}, fmt::format("{}: {}", name, e.message));
    const Position at = state.root->at;
    state.root = with(state.root, steps, 0, "", value);
    state.root->at = at;
  } catch (const Error& e) {
    state.add_error({}, fmt::format("{}: {}", name, e.what()));
  }
}

}  // namespace wyvern
