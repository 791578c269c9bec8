#include "trainer/interop/hf_keys.h"

#include "kernels/base/check.h"

namespace wyvern {

using nlohmann::json;

HfKeys::HfKeys(json object, std::string file, std::string prefix)
    : object_(std::move(object)), file_(std::move(file)), prefix_(std::move(prefix)) {
  if (!object_.is_object())
    fail(kUsage, "{}: {} must be a JSON object, found {}", file_, prefix_.empty() ? "the document" : prefix_, object_.dump());
}

const json& HfKeys::at(const std::string& key) {
  static const json absent;
  known_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() ? absent : *it;
}

bool HfKeys::present(const std::string& key) {
  known_.insert(key);
  return object_.contains(key);
}
bool HfKeys::has(const std::string& key) { return !at(key).is_null(); }

void HfKeys::refuse(const std::string& key, const std::string& why) const {
  const auto it = object_.find(key);
  fail(kUsage, "{}: {}{} = {}: {}", file_, prefix_, key, it == object_.end() ? "(absent)" : it->dump(), why);
}
void HfKeys::wrong_type(const std::string& key, const char* wanted) const {
  refuse(key, object_.contains(key) && !object_[key].is_null() ? fmt::format("expected {}", wanted) : fmt::format("is needed: {}", wanted));
}

int64_t HfKeys::integer(const std::string& key, std::optional<int64_t> otherwise, int64_t low) {
  constexpr int64_t high = int64_t(1) << 24;      // as wide as a Wyvern config goes
  const json& v = at(key);
  if (v.is_null() && otherwise) return *otherwise;
  if (!v.is_number_integer()) wrong_type(key, "an integer");
  const bool too_large = v.is_number_unsigned() && v.get<uint64_t>() > uint64_t(high);
  if (too_large || v.get<int64_t>() < low) refuse(key, fmt::format("outside [{}, {}]", low, high));
  return v.get<int64_t>();
}

double HfKeys::number(const std::string& key, std::optional<double> otherwise, double low, double high) {
  const json& v = at(key);
  if (v.is_null() && otherwise) return *otherwise;
  if (!v.is_number()) wrong_type(key, "a number");
  if (const double x = v.get<double>(); !(x >= low && x <= high)) refuse(key, fmt::format("outside [{}, {}]", low, high));
  return v.get<double>();
}

bool HfKeys::boolean(const std::string& key, bool otherwise) {
  const json& v = at(key);
  if (v.is_null()) return otherwise;
  if (!v.is_boolean()) wrong_type(key, "true or false");
  return v.get<bool>();
}

std::string HfKeys::text(const std::string& key, std::optional<std::string> otherwise) {
  const json& v = at(key);
  if (v.is_null() && otherwise) return *otherwise;
  if (!v.is_string()) wrong_type(key, "a string");
  return v.get<std::string>();
}

std::vector<std::string> HfKeys::texts(const std::string& key) {
  const json& v = at(key);
  if (!v.is_array()) wrong_type(key, "a list of strings");
  for (const json& item : v)
    if (!item.is_string()) wrong_type(key, "a list of strings");
  return v.get<std::vector<std::string>>();
}

HfKeys HfKeys::map(const std::string& key) { return HfKeys(at(key), file_, prefix_ + key + "."); }

void HfKeys::only(const std::string& key, const json& value) {
  const json& v = at(key);
  if (!v.is_null() && v != value) refuse(key, fmt::format("Wyvern's layers have no such variant; only {} is read", value.dump()));
}

void HfKeys::inert(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }

void HfKeys::inert_matching(std::string_view prefix, std::string_view suffix) {
  for (const auto& [key, value] : object_.items())
    if (key.starts_with(prefix) && key.ends_with(suffix)) known_.insert(key);
}

void HfKeys::finish() const {
  std::string unknown;
  for (const auto& [key, value] : object_.items())
    if (!known_.contains(key)) unknown += fmt::format("{}{}{} = {}", unknown.empty() ? "" : ", ", prefix_, key, value.dump());
  if (!unknown.empty())
    fail(kUsage, "{}: not known to leave the model unchanged: {}; remove what does not matter, the rest cannot be imported", file_,
         unknown);
}

}  // namespace wyvern
