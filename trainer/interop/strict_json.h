// JSON as this folder reads it: one document, a key at most once per object. Internal: brings in nlohmann.
#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace wyvern {

// `what` names the document in messages; `code` is the exit code of a malformed one.
nlohmann::json parse_json(std::string_view text, const std::string& what, int code);

}  // namespace wyvern
