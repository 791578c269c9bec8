#include "trainer/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/base/check.h"

namespace wyvern {
namespace {

// Keeps the lines up to `step`, moves the rest (and a torn last line) aside. Returns how many were moved.
int64_t split_lines(const std::string& path, int64_t step) {
  std::ifstream in(path);
  if (!in) return 0;
  std::string keep, later;
  int64_t moved = 0;
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    const bool good = !j.is_discarded() && j.contains("step") && j["step"].is_number_integer() && j["step"].get<int64_t>() <= step;
    (good ? keep : later) += line + "\n";
    moved += !good;
  }
  if (!moved) return 0;
  std::ofstream(fmt::format("{}.after-step-{}", path, step), std::ios::app) << later;
  const std::string aside = path + ".partial";
  std::ofstream(aside) << keep;
  std::filesystem::rename(aside, path);
  return moved;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t resume_step) : path_(path) {
  if (resume_step >= 0) moved_ = split_lines(path, resume_step);
  file_ = std::fopen(path.c_str(), "a");
  if (!file_) fail(kEnvironment, "cannot write {}: {}", path, std::strerror(errno));
}
MetricsFile::~MetricsFile() { if (file_) std::fclose(file_); }

void MetricsFile::write(const char* event, int64_t step, std::initializer_list<Field> fields) {
  nlohmann::ordered_json j;
  j["event"] = event;
  j["time"] = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  j["step"] = step;
  for (const Field& f : fields)
    std::visit([&](const auto& v) {
      if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>) {
        if (std::isfinite(v)) j[f.key] = v;
        else { j[f.key] = nullptr; j["nonfinite"] = true; }
      } else {
        j[f.key] = v;
      }
    }, f.value);
  const std::string line = j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fputs(line.c_str(), file_) < 0 || std::fflush(file_) != 0) fail(kRuntime, "cannot write {}: {}", path_, std::strerror(errno));
}

double OutlierDetector::update(double value) {
  double z = 0;
  if (count_ == kWindow) {
    double mean = 0, square = 0;
    for (double v : values_) mean += v;
    mean /= double(kWindow);
    for (double v : values_) square += (v - mean) * (v - mean);
    const double deviation = std::sqrt(square / double(kWindow));
    z = deviation > 0 ? (value - mean) / deviation : 0;
  }
  values_[next_] = value;
  next_ = (next_ + 1) % kWindow;
  if (count_ < kWindow) count_++;
  return z;
}

std::string OutlierDetector::save() const {
  std::string out = fmt::format("{} {}", count_, next_);
  for (size_t i = 0; i < count_; i++) out += fmt::format(" {:a}", values_[i]);
  return out;
}
void OutlierDetector::restore(const std::string& s) {
  std::istringstream in(s);
  in >> count_ >> next_;
  if (!in || count_ > kWindow || next_ >= kWindow) fail(kCorrupt, "the checkpoint's loss statistics are damaged");
  for (size_t i = 0; i < count_; i++) {
    std::string word;
    in >> word;
    values_[i] = std::strtod(word.c_str(), nullptr);
  }
}

}  // namespace wyvern
