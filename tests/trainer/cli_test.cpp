// The command line itself: help, usage errors, configs, and the verbs that need no model.
#include "tests/trainer/command.h"

namespace wyvern {
namespace {

const char* kVerbs[] = {"train", "plan",   "gradcheck", "config",    "bench", "eval",   "generate",
                        "dump",  "import", "data",      "tokenizer", "ckpt",  "version"};

TEST_F(Cli, HelpListsTheVerbs) {
  const Finished help = work.run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* verb : kVerbs) {
    EXPECT_TRUE(contains(help.out, std::string("\n  ") + verb + " ")) << verb;
    const Finished own = work.run({verb, "--help"});
    EXPECT_EQ(own.code, 0) << verb;
    EXPECT_TRUE(contains(own.out, "Usage") || contains(own.out, "Options")) << verb;
  }
}

TEST_F(Cli, WithoutArgumentsTheHelpAndExitCode2) {
  const Finished f = work.run({});
  EXPECT_EQ(f.code, 2);
  EXPECT_TRUE(contains(f.out, "wyvern train configs/smoke.yaml"));
}

TEST_F(Cli, UsageErrorsSayWhatToDo) {
  work.refused(2, {"no verb 'trian'", "did you mean 'train'", "wyvern --help"}, {"trian"});
  work.refused(2, {"no verb 'xyzzy'", "wyvern --help"}, {"xyzzy"});
  work.refused(2, {"config is required", "wyvern train --help"}, {"train"});
  work.refused(2, {"--resum", "wyvern train --help"}, {"train", preset("smoke"), "--resum", "auto"});
  work.refused(2, {"wyvern --help"}, {"--frobnicate"});
  work.refused(2, {"subcommand", "wyvern config --help"}, {"config"});
  work.refused(2, {"not expected", "extra"}, {"version", "extra"});
  work.refused(2, {"--what"}, {"bench", preset("smoke"), "--what", "everything"});
  work.refused(2, {"nowhere.yaml", "No such file"}, {"train", "nowhere.yaml"});
}

TEST_F(Cli, NumbersOnTheCommandLineHaveRanges) {
  for (const char* bad : {"-1", "101", "nan", "inf", "warm", ""})
    work.refused(2, {"--temperature"}, {"generate", "model", "--temperature", bad});
  for (const char* bad : {"-0.1", "1.1", "nan"}) work.refused(2, {"--top-p"}, {"generate", "model", "--top-p", bad});
  for (const char* bad : {"-1", "1.5", "99999999999999999999", "x"}) {
    work.refused(2, {"--count"}, {"generate", "model", "-n", bad});
    work.refused(2, {"--seed"}, {"generate", "model", "--seed", bad});
    work.refused(2, {"--windows"}, {"eval", "model", "--data", "x.bin", "--windows", bad});
    work.refused(2, {"--sequence"}, {"eval", "model", "--data", "x.bin", "--sequence", bad});
  }
  for (const char* bad : {"0", "-1", "nan"}) work.refused(2, {"--micro-batch"}, {"eval", "model", "--data", "x.bin", "--micro-batch", bad});
  for (const char* bad : {"-0.1", "1", "nan"})
    work.refused(2, {"--validation"}, {"data", "prepare", "x.txt", "--out", "d", "--validation", bad});
}

TEST_F(Cli, Version) {
  const auto j = work.json({"version"});
  EXPECT_EQ(keys_of(j), (Words{"version", "git", "compiler", "cpu_tier", "threads", "hdf5"}));
  const std::string version = j["version"];
  EXPECT_TRUE(contains(work.run({"version"}).out, "wyvern " + version));
  const Finished flag = work.run({"--version"});
  EXPECT_EQ(flag.code, 0);
  EXPECT_TRUE(contains(flag.out, "wyvern " + version));
}

TEST_F(Cli, CpuTierIsCheckedFirst) {
  work.refused(2, {"WYVERN_CPU_TIER=sse", "plain | avx2 | avx512 | amx"}, {"version"}, {.environment = {"WYVERN_CPU_TIER=sse"}});
  EXPECT_EQ(work.json({"version"}, {.environment = {"WYVERN_CPU_TIER=plain"}})["cpu_tier"], "plain");
  if (work.json({"version"}, {.environment = {"WYVERN_CPU_TIER="}})["cpu_tier"] != "amx")
    work.refused(3, {"WYVERN_CPU_TIER=amx", "this machine has no more than"}, {"version"}, {.environment = {"WYVERN_CPU_TIER=amx"}});
}

// ---- configs -----------------------------------------------------------------------------------------------------------------

TEST_F(Cli, S68_S69_S70_S71_EveryMistakeAtOnceWithItsPlace) {
  std::string text = slurp(preset("smoke"));
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  };
  replace("vocab_size: 64", "vocab_size: 0x40");
  replace("tied: true", "tied: maybe");
  replace("warmup: 5", "warm-up: 5");
  replace("  steps: 20", "  steps: 20\n  learing_rate: 1.0");
  replace("seed: 1337", "seed: 1337\nseed: 1338");
  work.write("bad.yaml", text);
  const auto line_of = [&](const std::string& word) {
    return std::to_string(1 + std::count(text.begin(), text.begin() + int64_t(text.find(word)), '\n'));
  };
  for (const char* verb : {"train", "plan", "gradcheck"})
    work.refused(2, {"bad.yaml:" + line_of("vocab_size") + ":", "vocab_size: expected an integer", "0x40",
                     "bad.yaml:" + line_of("tied") + ":", "tied: expected a boolean, got 'maybe'",
                     "bad.yaml:" + line_of("warm-up") + ":", "warm-up", "did you mean 'warmup'",
                     "bad.yaml:" + line_of("learing_rate") + ":", "unknown key 'train.learing_rate'",
                     "bad.yaml:" + line_of("seed: 1338") + ":", "seed"},
                 {verb, "bad.yaml"});
  work.refused(2, {"command line", "unknown key 'optim.clp'", "did you mean 'clip'"}, {"train", preset("smoke"), "optim.clp=2"});
  work.refused(2, {"command line", "'='", "optim.clip=0.5"}, {"train", preset("smoke"), "optim.clip"});
  EXPECT_FALSE(std::filesystem::exists(work / "runs")) << "a run folder was made before the config was read";
}

TEST_F(Cli, ShownConfigsParseBackToThemselves) {
  for (const std::string& name : presets()) {
    const Finished shown = work.run({"config", "show", preset(name)});
    ASSERT_EQ(shown.code, 0) << shown.err;
    work.write("shown.yaml", shown.out);
    EXPECT_EQ(work.run({"config", "show", "shown.yaml"}).out, shown.out) << name;
    EXPECT_EQ(work.json({"config", "show", preset(name)})["config"], shown.out) << name;
    EXPECT_EQ(work.json({"config", "check", preset(name)})["ok"], true) << name;
  }
}

TEST_F(Cli, ShowSaysWhereValuesComeFrom) {
  const Finished f = work.run({"config", "show", preset("smoke"), "optim.clip=0.5", "--origin"});
  EXPECT_EQ(f.code, 0);
  const auto line_with = [&](const std::string& key) {
    const size_t at = f.out.find(key);
    return at == std::string::npos ? "" : f.out.substr(at, f.out.find('\n', at) - at);
  };
  EXPECT_TRUE(contains(line_with("  clip: 0.5"), "# command line")) << f.out;
  EXPECT_TRUE(contains(line_with("  channels: 64"), "smoke.yaml:")) << f.out;
  EXPECT_TRUE(contains(line_with("  log_every: 1"), "# default")) << f.out;
}

TEST_F(Cli, DocsDescribeEveryKey) {
  const Finished f = work.run({"config", "show", preset("gpt2-124m"), "--docs"});
  EXPECT_EQ(f.code, 0);
  EXPECT_TRUE(f.out.starts_with("| key | type | default | allowed | meaning |"));
  for (const char* key :
       {"`model.channels`", "`optim.clip`", "`train.checkpoint.every`", "`model.layers[].pattern[].attention.heads`", "`run.dir`"})
    EXPECT_TRUE(contains(f.out, key)) << key;
}

// ---- gradcheck and bench -------------------------------------------------------------------------------------------------------

TEST_F(Cli, GradcheckPassesAndReports) {
  const auto j = work.json({"gradcheck", preset("smoke"), "--entries", "8"});
  EXPECT_EQ(keys_of(j), (Words{"passed", "worst", "tensors"}));
  EXPECT_EQ(j["passed"], true);
  EXPECT_LE(j["worst"].get<double>(), 1);
  EXPECT_EQ(j["tensors"].size(), 16u);                                 // 2 tables, the one kind of layer with 12, the final norm's 2
  for (const auto& t : j["tensors"]) {
    EXPECT_EQ(keys_of(t), (Words{"name", "error", "allowed", "verdict"}));
    EXPECT_LE(t["error"].get<double>(), t["allowed"].get<double>()) << t["name"];
    EXPECT_TRUE(t["verdict"] == "ok" || t["verdict"] == "zero") << t["name"];
  }
  const Finished table = work.run({"gradcheck", preset("dense-modern"), "--entries", "8"});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(contains(table.out, "passed: ")) << table.out;
}

TEST_F(Cli, BenchGivesNumbers) {
  const auto j = work.json({"bench", preset("smoke"), "--what", "adamw", "--seconds", "0.01"});
  EXPECT_FALSE(j.empty());
}

}  // namespace
}  // namespace wyvern
