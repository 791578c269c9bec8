// train from the command line: what it prints, how it stops and goes on, and what it refuses.
#include "data/token_store.h"
#include "tests/trainer/trained_run.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

TEST_F(Cli, TrainPrintsOneObjectAndResumes) {
  const auto j = work.json({"train", preset("smoke")});
  EXPECT_EQ(keys_of(j), (Words{"step", "tokens", "loss", "seconds", "checkpoint", "stopped"}));
  EXPECT_EQ(j["step"], 20);
  EXPECT_EQ(j["tokens"], 20 * 16 * 64);
  EXPECT_EQ(j["stopped"], false);
  EXPECT_NEAR(j["loss"].get<double>(), std::log(64.0), 0.1);
  EXPECT_TRUE(fs::exists(work / j["checkpoint"].get<std::string>() + "/manifest.json"));

  work.refused(2, {"runs/smoke already holds a run", "--resume auto"}, {"train", preset("smoke")});       // S67
  const auto again = work.json({"train", preset("smoke"), "--resume", "auto"});
  EXPECT_EQ(again["step"], 20);
  EXPECT_TRUE(again["loss"].is_null()) << "no step was taken, so there is no loss";
  const auto earlier = work.json({"train", preset("smoke"), "--resume", "10"});
  EXPECT_EQ(earlier["step"], 20);
  EXPECT_EQ(earlier["loss"], j["loss"]);
  const Finished text = work.run({"train", preset("smoke"), "name=text"});
  EXPECT_EQ(text.code, 0);
  EXPECT_TRUE(contains(text.out, "finished after") && contains(text.out, "checkpoint runs/text/checkpoints/step-00000020")) << text.out;
  EXPECT_TRUE(contains(text.err, "step     20/20")) << text.err;
  EXPECT_EQ(work.run({"train", preset("smoke"), "name=quiet", "-q"}).err, "");
}

TEST_F(Cli, S67_WhereToResumeFromMustExist) {
  for (const char* from : {"latest", "5", "99999999999999999999", "runs/elsewhere", "-5"})
    work.refused(2, {std::string("--resume ") + from}, {"train", preset("smoke"), "--resume", from});
}

TEST_F(Cli, PoisonedArenasTrainTheSame) {
  const auto clean = work.json({"train", preset("smoke"), "name=clean", "train.steps=5"});
  const auto poisoned = work.json({"train", preset("smoke"), "name=poisoned", "train.steps=5"}, {.environment = {"WYVERN_POISON=1"}});
  EXPECT_EQ(poisoned["loss"], clean["loss"]);
}

TEST_F(Cli, DivergenceHasItsOwnExitCode) {
  work.refused(5, {"not finite", "latest checkpoint is (none)"},
               {"train", preset("smoke"), "-q", "optim.schedule={kind: constant}", "optim.clip=none", "train.steps=60",
                "optim.groups=[{match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 1000, weight_decay: 900}]"});
}

// ---- stops ---------------------------------------------------------------------------------------------------------------------

class CliStop : public Cli {
 protected:
  const Words forever = {"train", preset("smoke"), "name=long", "train.steps=1000000", "train.checkpoint={every: 0}", "--json"};
  bool under_way() const { return contains(slurp(work / "runs/long/metrics.jsonl"), "\"train\""); }

  void expect_stops(const std::string& how, const std::function<void(const Running&)>& stop) {
    SCOPED_TRACE(how);
    fs::remove_all(work / "runs");
    Running r(work.path(), forever, {});
    ASSERT_TRUE(r.wait_until([&] { return under_way(); })) << r.err();
    work.refused(2, {"another process is training in runs/long"}, forever);               // the lock
    stop(r);
    const Finished f = r.wait();
    EXPECT_EQ(f.code, 75) << f.err;
    EXPECT_TRUE(contains(f.err, "stopped on " + how)) << f.err;
    const auto j = f.json();
    EXPECT_EQ(j["stopped"], true);
    EXPECT_GT(j["step"].get<int64_t>(), 0);
    EXPECT_EQ(work.run({"ckpt", "verify", j["checkpoint"]}).code, 0);
    EXPECT_TRUE(contains(slurp(work / "runs/long/metrics.jsonl"), "\"signal\""));
    EXPECT_FALSE(fs::exists(work / "runs/long/STOP")) << "a resume would stop at once";

    Words on = forever;
    on[3] = "train.steps=" + std::to_string(j["step"].get<int64_t>() + 10);
    on.insert(on.end(), {"--resume", "latest"});
    const Finished resumed = work.run(on);
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.json()["step"].get<int64_t>(), j["step"].get<int64_t>() + 10);
  }
};

TEST_F(CliStop, S73_Sigterm) { expect_stops("SIGTERM", [](const Running& r) { r.signal(SIGTERM); }); }
TEST_F(CliStop, S73_Sigint) { expect_stops("SIGINT", [](const Running& r) { r.signal(SIGINT); }); }
TEST_F(CliStop, S73_Sigusr1) { expect_stops("SIGUSR1", [](const Running& r) { r.signal(SIGUSR1); }); }
TEST_F(CliStop, StopFile) { expect_stops("STOP file", [&](const Running&) { work.write("runs/long/STOP", ""); }); }

TEST_F(CliStop, TimeLimit) {
  Words words = forever;
  words[4] = "train.checkpoint={time_limit: 1}";
  const Finished f = work.run(words);
  EXPECT_EQ(f.code, 75) << f.err;
  EXPECT_TRUE(contains(f.err, "stopped on time limit")) << f.err;
}

// Slow steps: F64 on one thread, 43 MFLOP a sequence.
Words slow(int sequences, int passes) {
  return {"train", preset("smoke"), "name=long", "compute=f64", "train.threads=1", "train.micro_batch=" + std::to_string(sequences),
          "train.batch=" + std::to_string(sequences * passes), "--json"};
}

TEST_F(CliStop, S73_DuringTheFirstStepNothingIsLost) {
  Running r(work.path(), slow(64, 1000), {});
  ASSERT_TRUE(r.wait_until([&] { return contains(r.err(), "peak memory"); })) << r.err();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  r.signal(SIGTERM);
  const Finished f = r.wait();
  EXPECT_EQ(f.code, 75) << f.err;
  const auto j = f.json();
  EXPECT_EQ(j["step"], 0);
  EXPECT_EQ(j["tokens"], 0);
  EXPECT_TRUE(contains(j["checkpoint"].get<std::string>(), "step-00000000"));
}

TEST_F(CliStop, ASecondInterruptLeavesAtOnce) {
  Running r(work.path(), slow(512, 1), {});
  ASSERT_TRUE(r.wait_until([&] { return contains(r.err(), "peak memory"); })) << r.err();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  r.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  r.signal(SIGINT);
  const Finished f = r.wait();
  EXPECT_EQ(f.code, 130) << f.err;
  EXPECT_EQ(f.out, "");
  EXPECT_FALSE(fs::exists(work / "runs/long/checkpoints/step-00000000"));
}

TEST_F(CliStop, S62_AfterAKillTheRunGoesOn) {
  Words words = forever;
  words[4] = "train.checkpoint={every: 1, keep: 2}";
  {
    Running r(work.path(), words, {});
    ASSERT_TRUE(r.wait_until([&] { return contains(slurp(work / "runs/long/metrics.jsonl"), "\"checkpoint\""); })) << r.err();
  }                                                                    // SIGKILL, most likely in the middle of a save
  const auto list = work.json({"ckpt", "ls", "runs/long"})["checkpoints"];
  ASSERT_FALSE(list.empty());
  const int64_t step = list.back()["step"];
  words[3] = "train.steps=" + std::to_string(step + 10);
  words.insert(words.end(), {"--resume", "latest"});
  const Finished f = work.run(words);
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.json()["step"], step + 10);
}

// ---- disks ---------------------------------------------------------------------------------------------------------------------

TEST_F(Cli, S63_AFullDiskKeepsTheOldCheckpoint) {
  work.json({"train", preset("smoke"), "train.steps=10", "-q"});
  const Words on = {"train", preset("smoke"), "-q", "--resume", "latest"};
  work.refused(1, {"step 20 could not be saved", "File too large", "earlier checkpoints", "are kept"}, on, {.largest_file = 300 << 10});
  EXPECT_FALSE(fs::exists(work / "runs/smoke/checkpoints/step-00000020"));
  EXPECT_FALSE(fs::exists(work / "runs/smoke/checkpoints/step-00000020.partial"));
  EXPECT_EQ(work.run({"ckpt", "verify", "runs/smoke/checkpoints/step-00000010"}).code, 0);
  EXPECT_EQ(work.run(on).code, 0);                                     // with room again it goes on
}

TEST_F(Cli, S63_AFolderThatCannotBeMade) {
  work.write("file", "");
  work.refused(3, {"cannot create the run folder file/runs/smoke", "run.dir"}, {"train", preset("smoke"), "run.dir=file/runs"});
}

// ---- data ----------------------------------------------------------------------------------------------------------------------

class CliData : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    if (IsSkipped()) return;
    work.write("run.yaml", kTextConfig);
    std::vector<int32_t> ids;
    for (int i = 0; i < 2000; i++) ids.push_back(i * 7 % 300);
    fs::create_directories(work / "d");
    write_shard(work / "d/train_000.bin", ids, "test", 300, 1, 2000);
    shard = slurp(work / "d/train_000.bin");
    fs::remove(work / "d/train_000.bin.json");                         // a foreign shard: nothing but the file itself is known
  }
  const Words train = {
      "train",         "run.yaml", "data.tokenizer=none", "data.val=none", "train.validate={every: 0}", "train.sample={every: 0}",
      "train.steps=2", "-q"};
  void refused(int code, const Words& parts) { work.refused(code, parts, train); }
  std::string shard;
};

TEST_F(CliData, S02_ShardsAreNotTrusted) {
  EXPECT_EQ(work.run(train).code, 0);
  fs::remove_all(work / "runs");
  const auto with = [&](size_t at, char byte) { std::string s = shard; s[at] = byte; return s; };
  const std::pair<std::string, Words> damaged[] = {{with(0, 'x'), {"magic number"}},
                                                   {with(4, 2), {"version"}},
                                                   {with(11, char(0x7f)), {"claims", "tokens"}},
                                                   {with(11, char(0xff)), {"tokens"}},
                                                   {shard.substr(0, shard.size() - 1), {"claims", "missing"}},
                                                   {shard.substr(0, 1000), {"header"}},
                                                   {shard + "ab", {"claims", "2000 tokens"}},
                                                   {small_text(), {"plain text", "wyvern data prepare"}},
                                                   {"", {"train_000.bin"}}};
  for (const auto& [bytes, parts] : damaged) {
    work.write("d/train_000.bin", bytes);
    Words all = parts;
    all.push_back("d/train_000.bin");
    refused(4, all);
    work.refused(4, all, {"data", "inspect", "d/train_000.bin"});
  }
}

TEST_F(CliData, S01_IdsBeyondTheVocabularyAreNamed) {
  std::string s = shard;
  s[1024 + 2 * 1234] = char(0xff);                                     // token 1234 becomes 0xff?? of 300
  s[1024 + 2 * 1234 + 1] = char(0xff);
  work.write("d/train_000.bin", s);
  refused(4, {"d/train_000.bin", "65535", "300"});
}

TEST_F(CliData, S04_TooLittleDataIsRefusedAtOnce) {
  write_shard(work / "d/train_000.bin", std::vector<int32_t>(32, 1), "test", 300, 1, 32);
  fs::remove(work / "d/train_000.bin.json");
  refused(2, {"32"});                                                  // a window needs 33
  fs::remove(work / "d/train_000.bin");
  refused(2, {"no file matches", "d/train_*.bin"});
}

TEST_F(CliData, AnotherVocabularyOrTokenizerIsRefused) {
  write_shard(work / "d/train_000.bin", std::vector<int32_t>(2000, 1), "test", 400, 1, 2000);
  refused(2, {"vocabulary of 400", "the model has 300", "model.vocab_size"});
  write_shard(work / "d/train_000.bin", std::vector<int32_t>(2000, 1), "bytes", 256, 1, 2000);
  work.write("text.txt", small_text());
  work.json({"tokenizer", "train", "text.txt", "--vocab", "300", "--out", "tok.json"});
  work.refused(2, {"d/train_000.bin", "written with tokenizer bytes", "bpe-"},
               {"train", "run.yaml", "data.tokenizer=tok.json", "data.val=none", "-q"});
}

}  // namespace
}  // namespace wyvern
