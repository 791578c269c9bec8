// Trainer: owns the loop and nothing else. One step:
//   tokens of the global step -> per micro-step forward, backward (gradients accumulate, losses already divided by the step's
//   valid tokens) -> gradient sync -> norm, finite check -> clip -> optimizer.
// A stop request is seen between micro-steps: the partial accumulation is dropped and the state of the step's start is saved.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "trainer/evaluate.h"
#include "trainer/metrics.h"
#include "trainer/plan.h"
#include "trainer/progress.h"
#include "trainer/run_folder.h"
#include "trainer/signals.h"

namespace wyvern {

struct TrainOutcome {
  int exit_code = 0;                    // kDone, or kStopped when saved on request
  int64_t step = 0, tokens = 0;
  std::optional<double> loss;           // of the last step taken
  std::optional<EvalResult> validation;
  std::string checkpoint, sample;
  double seconds = 0;
};

class Trainer {
 public:
  // resolved: the config's full text, stored with every checkpoint. start: a checkpoint to resume, or none.
  Trainer(const RunConfig&, std::string resolved, RunFolder&, std::optional<std::string> start);
  TrainOutcome run();

 private:
  struct StepResult { double loss = 0, norm = 0, loss_z = 0, norm_z = 0; int64_t tokens = 0; bool skipped = false; };

  void open_data();
  void resume(const std::string& checkpoint);
  bool step(StepResult&);               // false: stopped in the middle, state is that of the step's start
  double accumulate(const TokenBatch&, double loss_scale, bool& stopped);
  void show_progress(int64_t pass, int64_t passes);     // the live line, on a terminal
  void log_step(const StepResult&, double seconds);
  EvalResult validate();
  std::string sample_text();
  std::string save();
  void after_step();                    // the every-N actions

  RunConfig config_;
  std::string resolved_;
  RunFolder& folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<TokenStore> val_store_;     // val_ reads from it
  std::unique_ptr<TokenSource> train_, val_;
  LoaderState val_start_;
  std::vector<int32_t> bytes_of_token_;
  Plan plan_;
  std::unique_ptr<Instance> model_;
  StopRequest stop_;
  std::unique_ptr<MetricsFile> metrics_;
  Progress progress_;
  OutlierDetector loss_stats_, norm_stats_;
  int64_t step_ = 0, tokens_ = 0, last_saved_ = -1;
  double peak_flops_ = 0;
  double smooth_seconds_ = 0;           // per step, for the ETA
  double last_loss_ = 0;
  std::optional<EvalResult> last_validation_;
  std::string last_sample_;
};

}  // namespace wyvern
