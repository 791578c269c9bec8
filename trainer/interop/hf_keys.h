// The keys of one JSON object of a config.json. Each key is asked for by name with its type; whatever nobody asked for is an
// error, because a key that this importer does not know may change the model. Internal: brings in nlohmann.
#pragma once
#include <nlohmann/json.hpp>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace wyvern {

class HfKeys {
 public:
  HfKeys(nlohmann::json object, std::string file, std::string prefix = "");     // prefix: "rope_scaling." inside such a map

  bool present(const std::string& key);      // there, be it null
  bool has(const std::string& key);          // there and not null
  // Null counts as absent. Without `otherwise` an absent key is an error.
  int64_t integer(const std::string& key, std::optional<int64_t> otherwise = {}, int64_t low = 1);
  double number(const std::string& key, std::optional<double> otherwise, double low, double high);
  bool boolean(const std::string& key, bool otherwise);
  std::string text(const std::string& key, std::optional<std::string> otherwise = {});
  std::vector<std::string> texts(const std::string& key);
  HfKeys map(const std::string& key);

  void only(const std::string& key, const nlohmann::json& value);                // absent, null or this; else refused
  void inert(std::initializer_list<const char*> keys);                            // known to change nothing
  void inert_matching(std::string_view prefix, std::string_view suffix);          // the same for summary_* and *_token_id
  void finish() const;                                                            // every key must be known by now
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json& at(const std::string& key);                               // null when absent
  [[noreturn]] void wrong_type(const std::string& key, const char* wanted) const;
  nlohmann::json object_;
  std::string file_, prefix_;
  std::set<std::string> known_;
};

}  // namespace wyvern
