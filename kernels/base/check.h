// Errors. Libraries throw one Error; only main prints it and exits with its code.
//   CHECK(cond, fmt, ...)  a condition that user input can never break: a bug when it fails
//   fail(code, fmt, ...)   everything a user or the environment can cause: say what was found and what to do
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace wyvern {

enum ExitCode : int {
  kDone = 0,
  kRuntime = 1,       // something failed while running
  kUsage = 2,         // command line or config
  kEnvironment = 3,   // does not fit, or the machine lacks something
  kCorrupt = 4,       // data or checkpoint cannot be trusted
  kDiverged = 5,      // non-finite loss or gradient, or a guard tripped
  kStopped = 75,      // saved and stopped on a signal, a STOP file or the time limit (EX_TEMPFAIL: requeue)
  kInterrupted = 130  // second Ctrl-C
};

struct Error : std::runtime_error {
  Error(int exit_code, const std::string& message) : std::runtime_error(message), code(exit_code) {}
  int code;
};

template <class... A>
[[noreturn]] void fail(int code, fmt::format_string<A...> f, A&&... a) {
  throw Error(code, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace wyvern

#define CHECK(cond, ...)                                                                                       \
  do {                                                                                                         \
    if (!(cond)) [[unlikely]]                                                                                  \
      throw ::wyvern::Error(::wyvern::kRuntime,                                                                \
                            fmt::format("{}:{}: bug: {} does not hold: {}", __FILE__, __LINE__, #cond,          \
                                        fmt::format(__VA_ARGS__)));                                            \
  } while (0)
