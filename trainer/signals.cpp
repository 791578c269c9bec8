#include "trainer/signals.h"

#include <csignal>
#include <filesystem>
#include <unistd.h>

namespace wyvern {
namespace {

volatile std::sig_atomic_t received = 0;
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void on_signal(int signal) {
  if (signal == SIGINT && received == SIGINT) _exit(130);
  received = signal;
}

}  // namespace

StopRequest::StopRequest(std::string stop_file, double limit)
    : stop_file_(std::move(stop_file)), limit_(limit), start_(std::chrono::steady_clock::now()) {
  received = 0;
  for (int s : kSignals) std::signal(s, on_signal);
}
StopRequest::~StopRequest() {
  for (int s : kSignals) std::signal(s, SIG_DFL);
}

std::string StopRequest::reason() const {
  if (received == SIGTERM) return "SIGTERM";
  if (received == SIGINT) return "SIGINT";
  if (received == SIGUSR1) return "SIGUSR1";
  if (limit_ > 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() >= limit_) return "time limit";
  std::error_code ignored;
  if (std::filesystem::exists(stop_file_, ignored)) return "STOP file";
  return "";
}

void StopRequest::consumed() {
  std::error_code ignored;
  std::filesystem::remove(stop_file_, ignored);
}

}  // namespace wyvern
