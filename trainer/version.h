#pragma once
#include <string>

namespace wyvern {
std::string version();           // "0.1.0"
std::string git_revision();      // of the build; empty when unknown
std::string version_report(bool json);      // with libraries and CPU tier
}  // namespace wyvern
