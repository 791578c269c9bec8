#include "trainer/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "kernels/base/log.h"

namespace wyvern {

Progress::Progress(std::string what, double plain_every)
    : what_(std::move(what)), plain_every_(plain_every), start_(std::chrono::steady_clock::now()), live_(isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { clear(); }

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

void Progress::update(double done, double total, const std::string& text) {
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (first_done_ < 0) first_done_ = done;
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0;
  const double advanced = done - first_done_;
  const std::string eta = advanced > 0 ? human_seconds(now / advanced * (total - done)) : std::string("?");
  if (live_) {
    if (now - last_live_ < 0.1 && done < total) return;
    last_live_ = now;
    constexpr int kWidth = 24;
    const int full = int(share * kWidth);
    fmt::print(stderr, "\r\x1b[K{} [{}{}] {:3.0f} % {} ETA {}", what_, std::string(size_t(full), '#'),
               std::string(size_t(kWidth - full), '.'), share * 100, text, eta);
    std::fflush(stderr);
    shown_ = true;
  } else if (now - last_plain_ >= plain_every_) {
    if (last_plain_ >= 0 || plain_every_ == 0) log_info("{} {:.0f} % {} ETA {}", what_, share * 100, text, eta);
    last_plain_ = now;
  }
}

std::string human_seconds(double s) {
  if (!(s >= 0) || s > 1e9) return "?";
  const auto t = int64_t(s + 0.5);
  if (t < 60) return fmt::format("{}s", t);
  if (t < 3600) return fmt::format("{}m{:02}s", t / 60, t % 60);
  if (t < 86400) return fmt::format("{}h{:02}m", t / 3600, t / 60 % 60);
  return fmt::format("{}d{:02}h", t / 86400, t / 3600 % 24);
}
std::string human_count(double n) {
  if (n < 1000) return fmt::format("{:.0f}", n);
  if (n < 1e6) return fmt::format("{:.1f}k", n / 1e3);
  if (n < 1e9) return fmt::format("{:.2f}M", n / 1e6);
  if (n < 1e12) return fmt::format("{:.2f}B", n / 1e9);
  return fmt::format("{:.2f}T", n / 1e12);
}
std::string human_bytes(double n) {
  if (n < 1024) return fmt::format("{:.0f} B", n);
  if (n < 1048576) return fmt::format("{:.1f} KiB", n / 1024);
  if (n < 1073741824) return fmt::format("{:.1f} MiB", n / 1048576);
  return fmt::format("{:.2f} GiB", n / 1073741824);
}
std::string human_flops(double n) { return n < 1e12 ? fmt::format("{:.1f} GFLOP/s", n / 1e9) : fmt::format("{:.2f} TFLOP/s", n / 1e12); }
std::string with_commas(int64_t n) {
  std::string s = std::to_string(n), out;
  for (size_t i = 0; i < s.size(); i++) {
    if (i && (s.size() - i) % 3 == 0 && s[i - 1] != '-') out += ',';
    out += s[i];
  }
  return out;
}

}  // namespace wyvern
