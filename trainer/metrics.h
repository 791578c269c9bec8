// metrics.jsonl: one JSON object per line, flushed. Numbers that are not finite are written as null (JSON has no NaN).
// `event` is one of train, validate, checkpoint, sample, resume, signal, spike.
#pragma once
#include <cstdio>
#include <initializer_list>
#include <string>
#include <variant>

namespace wyvern {

class MetricsFile {
 public:
  using Value = std::variant<double, int64_t, std::string>;
  struct Field { const char* key; Value value; };

  // Appends. With resume_step >= 0, lines of later steps are first moved aside to <path>.after-step-N; returns through
  // moved_aside() how many. A line is "later" when its step exceeds resume_step.
  MetricsFile(const std::string& path, int64_t resume_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  void write(const char* event, int64_t step, std::initializer_list<Field>);
  int64_t moved_aside() const { return moved_; }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  int64_t moved_ = 0;
};

// Mean and deviation of the last `window` values, for z-scores of loss and gradient norm (llm.c's outlier detector).
class OutlierDetector {
 public:
  static constexpr size_t kWindow = 128;
  double update(double value);               // z of the value against the window before it; 0 until the window is full
  std::string save() const;                  // hexadecimal, exact: part of the checkpoint
  void restore(const std::string&);

 private:
  double values_[kWindow] = {};
  size_t count_ = 0, next_ = 0;
};

}  // namespace wyvern
