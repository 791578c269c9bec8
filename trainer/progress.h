// Progress of long work. On a terminal: one live line that rewrites itself; elsewhere: a plain line now and then.
#pragma once
#include <chrono>
#include <string>

namespace wyvern {

class Progress {
 public:
  explicit Progress(std::string what, double plain_every_seconds = 10);
  ~Progress();                                           // clears the live line
  // done / total in any unit; `text` is what to show beside bar and ETA.
  void update(double done, double total, const std::string& text);
  void clear();                                          // before another line is printed
  bool live() const { return live_; }

 private:
  std::string what_;
  double plain_every_, last_plain_ = -1e9, last_live_ = -1e9, first_done_ = -1;
  std::chrono::steady_clock::time_point start_;
  bool live_, shown_ = false;
};

std::string human_seconds(double);                       // "3m12s"
std::string human_count(double);                         // "1.23M"
std::string human_bytes(double);                         // "1.2 GiB"
std::string human_flops(double);                         // "1.23 TFLOP/s"
std::string with_commas(int64_t);                        // "124,439,808"

}  // namespace wyvern
