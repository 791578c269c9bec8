// Stop requests: SIGTERM, SIGINT, SIGUSR1, a STOP file in the run folder, a time limit. The loop asks between micro-steps;
// a second SIGINT leaves at once with exit code 130.
#pragma once
#include <chrono>
#include <string>

namespace wyvern {

class StopRequest {
 public:
  StopRequest(std::string stop_file, double time_limit_seconds);     // installs the handlers; 0 = no limit
  ~StopRequest();                                                    // restores them
  StopRequest(const StopRequest&) = delete;
  // Why to stop ("SIGTERM", "STOP file", "time limit"), or empty.
  std::string reason() const;
  void consumed();                                                   // removes the STOP file, so that a resume does not stop again

 private:
  std::string stop_file_;
  double limit_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace wyvern
