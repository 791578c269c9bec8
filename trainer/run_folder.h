// The folder of a run:
//   config.yaml (resolved)  run.json (git, argv, host, versions, config hash)  metrics.jsonl  samples.jsonl  lock  checkpoints/
// Decides where a run starts, and refuses to mix two runs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint.h"

namespace wyvern {

class RunFolder {
 public:
  // Creates the folder if need be, tests that it can be written, and takes its lock (one run at a time).
  RunFolder(const std::string& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string samples() const { return path_ + "/samples.jsonl"; }
  std::string stop_file() const { return path_ + "/STOP"; }
  bool used() const;                  // holds checkpoints or metrics of an earlier run

  // `resume`: "" (a used folder is an error), auto, latest, a step number, or the path of a checkpoint. Returns the checkpoint to
  // start from, or none.
  std::optional<std::string> starting_point(const std::string& resume) const;
  // Going on from an earlier step: the checkpoints after it move to checkpoints.after-step-N/, so that the new ones are never mixed
  // with them, nor pruned in their favour. Returns how many.
  int64_t set_aside_after(int64_t step) const;
  void write_records(const std::string& resolved_config, const std::vector<std::string>& argv) const;

 private:
  std::string path_;
  int lock_ = -1;
};

// Compares the config of a checkpoint with today's. Differences in model, data, seed, compute are refused (they would make it another
// run); differences elsewhere are returned, one line each, to be said in the log.
std::vector<std::string> check_same_run(const std::string& saved_config, const std::string& config, const std::string& checkpoint);

}  // namespace wyvern
