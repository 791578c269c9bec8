#include "kernels/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace wyvern {
namespace {

spdlog::logger& logger() {
  static std::shared_ptr<spdlog::logger> it = [] {
    const bool plain = std::getenv("NO_COLOR") != nullptr;
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(plain ? spdlog::color_mode::never : spdlog::color_mode::automatic);
    for (auto plainly : {spdlog::level::debug, spdlog::level::info}) sink->set_color(plainly, "\033[m");      // colour is for warnings
    auto l = std::make_shared<spdlog::logger>("wyvern", sink);
    l->set_pattern("%^%v%$");
    l->flush_on(spdlog::level::debug);
    return l;
  }();
  return *it;
}
spdlog::level::level_enum level(LogLevel l) {
  constexpr spdlog::level::level_enum table[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  return table[int(l)];
}

}  // namespace

void log_line(LogLevel l, const std::string& s) {
  const char* prefix = l == LogLevel::warning ? "warning: " : l == LogLevel::error ? "error: " : "";
  logger().log(level(l), "{}{}", prefix, s);
}
void set_log_level(LogLevel lowest) { logger().set_level(level(lowest)); }

}  // namespace wyvern
