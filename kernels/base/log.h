// Diagnostics: one line each, to stderr. Results go to stdout and never through here.
#pragma once
#include <fmt/core.h>

#include <string>
#include <utility>

namespace wyvern {

enum class LogLevel : uint8_t { debug, info, warning, error };
void log_line(LogLevel, const std::string&);
void set_log_level(LogLevel lowest);

template <class... A>
void log_debug(fmt::format_string<A...> f, A&&... a) {
  log_line(LogLevel::debug, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void log_info(fmt::format_string<A...> f, A&&... a) {
  log_line(LogLevel::info, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void log_warning(fmt::format_string<A...> f, A&&... a) {
  log_line(LogLevel::warning, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace wyvern
