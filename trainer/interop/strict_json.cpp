#include "trainer/interop/strict_json.h"

#include <set>
#include <vector>

#include "kernels/base/check.h"

namespace wyvern {

nlohmann::json parse_json(std::string_view text, const std::string& what, int code) {
  using json = nlohmann::json;
  std::vector<std::set<std::string>> open;       // the keys so far of every object that is open
  const auto refuse_duplicates = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      fail(code, "{}: the key \"{}\" appears twice in one object; keep one of them", what, parsed.get<std::string>());
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), refuse_duplicates);
  } catch (const json::exception& e) {
    fail(code, "{}: not valid JSON: {}", what, e.what());
  }
}

}  // namespace wyvern
