// The loop: bitwise resume, accumulation, evaluation, stops, guards. Tests are named after the kind of fault they keep out.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "tests/trainer/small_run.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

// Every file of the two checkpoints that holds numbers, byte for byte.
std::string weights(const std::string& checkpoint) { return slurp(checkpoint + "/rank-00000.h5"); }

TEST(Train, LearnsAndWritesItsRecords) {
  SmallRun r;
  const TrainOutcome o = r.train({"train.steps=60"});
  EXPECT_EQ(o.exit_code, kDone);
  EXPECT_EQ(o.step, 60);
  EXPECT_EQ(o.tokens, 60 * 8 * 16);
  const auto loss = r.column("small", "loss");
  ASSERT_EQ(loss.size(), 60u);
  EXPECT_NEAR(loss.front(), std::log(31.0), 0.1);
  EXPECT_LT(loss.back(), loss.front() - 0.5);
  ASSERT_TRUE(o.validation.has_value());
  EXPECT_LT(o.validation->loss, std::log(31.0) - 0.3);
  for (const char* file : {"config.yaml", "run.json", "metrics.jsonl", "samples.jsonl"})
    EXPECT_TRUE(fs::exists(r.folder() + "/" + file)) << file;
}

TEST(Train, S06_S07_S32_ResumeIsBitwise) {
  SmallRun r;
  const std::vector<std::string> base = {"train.checkpoint={every: 5, keep: 9}"};
  auto straight = base, halved = base;
  straight.push_back("name=straight");
  halved.push_back("name=halved");
  const TrainOutcome whole = r.train(straight);                       // 20 steps of 8 sequences cross several epochs of 280
  auto stop = halved;
  stop.push_back("train.time_limit=none");
  {                                                                   // stopped by a STOP file after a checkpoint at step 5
    const auto c = r.config(halved);
    RunFolder folder(r.folder("halved"));
    Trainer t(c.run, c.tree.resolved(), folder, {});
    std::ofstream(folder.stop_file()) << "";
    const TrainOutcome o = t.run();
    EXPECT_EQ(o.exit_code, kStopped);
    EXPECT_EQ(o.step, 0);
  }
  for (const int64_t until : {5, 10, 15}) {                            // leave only the checkpoints up to `until`, go on from there
    if (until > 5) fs::remove_all(checkpoint_path(r.folder("halved") + "/checkpoints", 20));
    const TrainOutcome o = r.train(halved, "auto");
    EXPECT_EQ(o.step, 20);
    for (int64_t s = until + 5; s <= 20; s += 5) fs::remove_all(checkpoint_path(r.folder("halved") + "/checkpoints", s));
  }
  const TrainOutcome resumed = r.train(halved, "latest");
  EXPECT_TRUE(weights(whole.checkpoint) == weights(resumed.checkpoint)) << "the checkpoints differ";
  for (const char* key : {"loss", "grad_norm", "lr", "loss_z", "tokens"})
    EXPECT_EQ(r.column("straight", key), r.column("halved", key)) << key;
  EXPECT_EQ(r.column("straight", "val_loss", "validate"), r.column("halved", "val_loss", "validate"));
}

TEST(Train, S81_SameConfigSameBits) {
  SmallRun r;
  const auto a = r.train({"name=a"}), b = r.train({"name=b"});
  EXPECT_TRUE(weights(a.checkpoint) == weights(b.checkpoint)) << "the checkpoints differ";
  EXPECT_EQ(r.column("a", "loss"), r.column("b", "loss"));
}

TEST(Train, S81_ThreadsChangeNoBit) {
  SmallRun r;
  for (const char* compute : {"f32", "bf16"}) {
    const auto run = [&](const char* threads) {
      return r.train(
          {std::string("name=") + compute + threads, std::string("compute=") + compute, std::string("train.threads=") + threads});
    };
    const std::string one = weights(run("1").checkpoint), two = weights(run("2").checkpoint), three = weights(run("3").checkpoint);
    EXPECT_TRUE(one == two && two == three) << compute << ": the checkpoints differ";
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(Train, RecomputeChangesNoBit) {
  SmallRun r;
  const auto none = r.train({"name=a"}), all = r.train({"name=b", "model.recompute=all"}),
             some = r.train({"name=c", "model.recompute={every: 2}"});
  EXPECT_TRUE(weights(none.checkpoint) == weights(all.checkpoint)) << "the checkpoints differ";
  EXPECT_TRUE(weights(none.checkpoint) == weights(some.checkpoint)) << "the checkpoints differ";
}

TEST(Train, ThePlanPredictsThePeak) {
  SmallRun r;
  for (const char* compute : {"f32", "bf16"}) {
    const std::vector<std::string> overrides = {std::string("name=") + compute,
                                                std::string("compute=") + compute,
                                                "model.channels=128",
                                                "model.context=64",
                                                "train.sequence=64",
                                                "train.steps=3"};
    const auto c = r.config(overrides);
    const Plan plan = make_plan(c.run);
    r.train(overrides);
    const auto used = r.column(compute, "peak_bytes");
    EXPECT_NEAR(used.back(), double(plan.memory.total()), 0.05 * used.back()) << compute;
  }
}

TEST(Train, S13_S14_S18_S19_S41_AccumulationKeepsLossAndGradient) {
  SmallRun r;
  std::vector<double> loss, norm;
  for (const char* micro : {"1", "2", "4", "8"}) {
    const std::string name = std::string("m") + micro;
    r.train({"name=" + name, "train.steps=4", "compute=f64", std::string("train.micro_batch=") + micro});
    loss.push_back(r.column(name, "loss").back());
    norm.push_back(r.column(name, "grad_norm").back());
    EXPECT_EQ(r.column(name, "tokens").back(), 4 * 8 * 16);               // a step is a step, however it is cut
  }
  for (size_t i = 1; i < loss.size(); i++) {
    EXPECT_NEAR(loss[i], loss[0], 1e-10 * loss[0]);
    EXPECT_NEAR(norm[i], norm[0], 1e-9 * norm[0]);
  }
}

TEST(Train, S16_BatchThatCannotBeDivided) {
  SmallRun r;
  expect_error(kUsage, {"train.batch = 8", "train.micro_batch = 3", "micro_batch"}, [&] { r.config({"train.micro_batch=3"}); });
  expect_error(kUsage, {"micro_batch"}, [&] { r.config({"train.micro_batch=0"}); });
}

TEST(Train, StopBetweenMicroStepsDropsTheAccumulation) {
  SmallRun r;
  const std::vector<std::string> slow = {"name=stopped", "train.batch=64", "train.micro_batch=1", "train.steps=6"};
  const auto c = r.config(slow);
  {
    RunFolder folder(r.folder("stopped"));
    Trainer t(c.run, c.tree.resolved(), folder, {});
    std::raise(SIGUSR1);                                              // noticed before the first step is complete
    const TrainOutcome o = t.run();
    EXPECT_EQ(o.exit_code, kStopped);
    EXPECT_EQ(o.step, 0);
  }
  const auto resumed = r.train(slow, "latest");
  auto straight = slow;
  straight[0] = "name=straight";
  const auto whole = r.train(straight);
  EXPECT_TRUE(weights(resumed.checkpoint) == weights(whole.checkpoint)) << "the checkpoints differ";
}

TEST(Train, TimeLimitSavesAndStops) {
  SmallRun r;
  const TrainOutcome o =
      r.train({"train.checkpoint={time_limit: 3}", "train.steps=100000", "train.validate={every: 0}", "train.sample={every: 0}"});
  EXPECT_EQ(o.exit_code, kStopped);
  EXPECT_GT(o.step, 0);
  EXPECT_TRUE(fs::exists(o.checkpoint));
}

TEST(Train, NonFiniteStopsBeforeAnythingChanges) {
  SmallRun r;
  r.train({"train.steps=3", "optim.schedule={kind: constant}"});
  const std::string before = weights(checkpoint_path(r.folder() + "/checkpoints", 3));
  expect_error(kDiverged, {"not finite", "step-00000003"}, [&] {
    r.train({"train.steps=60", "optim.schedule={kind: constant}",
             "optim.groups=[{match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 1000, weight_decay: 900}]"},
            "latest");
  });
  EXPECT_TRUE(before == weights(checkpoint_path(r.folder() + "/checkpoints", 3))) << "the checkpoints differ";
}

TEST(Train, S67_AUsedFolderIsNotMixed) {
  SmallRun r;
  expect_error(kUsage, {"holds no complete checkpoint", "--resume auto"}, [&] { r.train({}, "latest"); });
  r.train({"train.steps=3"});
  expect_error(kUsage, {"already holds a run", "--resume auto"}, [&] { r.train({"train.steps=3"}); });
  expect_error(kUsage, {"no complete checkpoint of that step", "3"}, [&] { r.train({"train.steps=3"}, "7"); });
  expect_error(kUsage, {"no such checkpoint"}, [&] { r.train({"train.steps=3"}, "elsewhere/step"); });
}

TEST(Train, S65_AnotherConfigIsRefused) {
  SmallRun r;
  r.train({"train.steps=3"});
  expect_error(kUsage, {"belongs to another config", "model"}, [&] { r.train({"train.steps=6", "model.layers[0].times=3"}, "latest"); });
  expect_error(kUsage, {"belongs to another config", "seed"}, [&] { r.train({"train.steps=6", "seed=6"}, "latest"); });
}

TEST(Train, S09_ChangedShardListIsRefused) {
  SmallRun r;
  r.train({"train.steps=3"});
  write_shard(r.temp / "train_002.bin", small_tokens(900, 9), "test", 31, 1, 900);
  expect_error(kCorrupt, {"shard"}, [&] { r.train({"train.steps=6"}, "latest"); });
}

TEST(Train, GoingOnFromAnEarlierStepKeepsTheNewCheckpoint) {
  SmallRun r;
  const std::vector<std::string> base = {"train.checkpoint={every: 5, keep: 1, milestone: 5}"};
  r.train(base);                                                        // 5, 10, 15, 20 stay: milestones
  auto shorter = base;
  shorter.push_back("train.steps=12");
  const TrainOutcome o = r.train(shorter, "5");
  EXPECT_EQ(o.step, 12);
  EXPECT_TRUE(fs::exists(o.checkpoint));
  EXPECT_EQ(list_checkpoints(r.folder() + "/checkpoints").back(), 12);
  EXPECT_TRUE(fs::exists(checkpoint_path(r.folder() + "/checkpoints.after-step-5", 20)));      // nothing saved is lost
}

TEST(Train, AFinishedRunHasNothingLeftToDo) {
  SmallRun r;
  r.train();
  const TrainOutcome o = r.train({}, "auto");
  EXPECT_EQ(o.step, 20);
  EXPECT_FALSE(o.loss.has_value());
}

TEST(Train, SpikesAreSkippedWhenAsked) {
  SmallRun r;
  r.train({"name=plain", "train.steps=150"});
  r.train({"name=guarded", "train.steps=150", "train.guard={skip_zscore: 0.5}"});      // far too eager: half the late steps are skipped
  EXPECT_TRUE(r.events("plain", "spike").empty());
  const auto spikes = r.events("guarded", "spike");
  ASSERT_FALSE(spikes.empty());
  for (const auto& s : spikes) EXPECT_GT(std::max(s["loss_z"].get<double>(), s["grad_norm_z"].get<double>()), 0.5);
  const auto a = r.column("plain", "loss"), b = r.column("guarded", "loss");
  for (size_t i = 0; i < 128; i++) EXPECT_EQ(a[i], b[i]);               // no statistics before the window is full
  EXPECT_NE(a.back(), b.back());
}

TEST(Train, S34_LongerRunSaysWhichScheduleIsUsed) {
  SmallRun r;
  r.train({"train.steps=6"});
  const TrainOutcome o = r.train({"train.steps=12"}, "latest");         // allowed, with a warning that names the change
  EXPECT_EQ(o.step, 12);
  const auto lr = r.column("small", "lr");
  for (size_t i = 7; i < lr.size(); i++) EXPECT_LT(lr[i], lr[i - 1]);    // the schedule of the longer run: it still only falls
}

TEST(Train, DataOfAnotherVocabularyIsRefused) {
  SmallRun r;
  for (const char* shard : {"train_000.bin", "train_001.bin"}) write_shard(r.temp / shard, small_tokens(3000, 1), "test", 40, 1, 3000);
  expect_error(kUsage, {"vocabulary of 40", "the model has 31", "model.vocab_size"}, [&] { r.train(); });
}

TEST(Train, MetricsBeyondTheCheckpointAreMovedAside) {
  SmallRun r;
  r.train({"train.checkpoint={every: 5, keep: 9}"});
  fs::remove_all(checkpoint_path(r.folder() + "/checkpoints", 20));
  fs::remove_all(checkpoint_path(r.folder() + "/checkpoints", 15));
  r.train({"train.checkpoint={every: 5, keep: 9}"}, "latest");
  EXPECT_EQ(r.column("small", "loss").size(), 20u);
  EXPECT_TRUE(fs::exists(r.folder() + "/metrics.jsonl.after-step-10"));
}

TEST(Evaluate, IndependentOfTheMicroBatch) {
  SmallRun r;
  const auto c = r.config();
  const TokenStore store = TokenStore::open(r.temp / "val_000.bin");
  std::vector<double> losses;
  for (int64_t B : {1, 3, 8}) {
    Instance m(c.run.model, DType::f32, nullptr, {{B, 16, Mode::eval}});
    m.params.initialise(m.stream, 5);
    auto windows = make_eval_windows(store, 16, 31);
    const EvalResult e = evaluate(m, *windows, windows->sequences_per_epoch(), B, 16, {});
    EXPECT_EQ(e.tokens, 699);                                          // every token but the first is predicted once
    losses.push_back(e.loss);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-6 * losses[0]);
  EXPECT_NEAR(losses[2], losses[0], 1e-6 * losses[0]);
}

TEST(OutlierDetector, MatchesItsDefinitionAndSurvivesASave) {
  OutlierDetector a;
  for (int i = 0; i < 128; i++) EXPECT_EQ(a.update(i % 2 ? 1.0 : 3.0), 0);
  OutlierDetector b;
  b.restore(a.save());
  EXPECT_DOUBLE_EQ(a.update(5.0), 3.0);                                // mean 2, deviation 1
  EXPECT_DOUBLE_EQ(b.update(5.0), 3.0);
}

}  // namespace
}  // namespace wyvern
