// plan: exact counts of every preset, memory, and FLOPs checked by hand.
#include "tests/trainer/command.h"

namespace wyvern {
namespace {

// A machine too small for a preset gives exit code 3, but the numbers all the same.
nlohmann::ordered_json plan(const Workplace& work, const std::string& config, Words overrides = {}) {
  Words words = {"plan", config, "--json", "--no-measure"};
  words.insert(words.end(), overrides.begin(), overrides.end());
  const Finished f = work.run(words);
  EXPECT_TRUE(f.code == 0 || (f.code == 3 && contains(f.err, "available"))) << f.code << f.err;
  return f.json();
}

const std::map<std::string, int64_t> kParameters = {
    {"gpt2-124m", 124439808}, {"gpt2-355m", 354823168}, {"gpt2-774m", 774030080}, {"gpt2-1558m", 1557611200}, {"shakespeare-char", 804096},
    // By hand, channels x (vocabulary + context) + layers + the last norm:
    {"quickstart", 256 * (4096 + 256) + 4 * (12 * 256 * 256 + 13 * 256) + 2 * 256},
    {"smoke", 64 * (64 + 64) + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64},
    {"shakespeare-char-gpu", 384 * (65 + 256) + 6 * (12 * 384 * 384 + 2 * 384) + 384},
    // Untied; qkv of 12 + 4 + 4 heads of 64, o, gate and up, down, two norms and the norms of q and k:
    {"dense-modern", 2 * 50257 * 768 + 12 * (20 * 64 * 768 + 768 * 768 + 3 * 2048 * 768 + 2 * 768 + 2 * 64) + 768}};

TEST_F(Cli, PlanCountsEveryPresetExactly) {
  for (const std::string& name : presets()) {
    SCOPED_TRACE(name);
    const auto j = plan(work, preset(name));
    EXPECT_EQ(keys_of(j), (Words{"parameters", "memory", "flops_per_token", "tokens", "steps", "seconds_estimate"}));
    EXPECT_EQ(keys_of(j["parameters"]), (Words{"total", "active", "padded", "by_module"}));
    EXPECT_EQ(keys_of(j["memory"]), (Words{"parameters", "gradients", "optimizer", "saved", "scratch", "peak_bytes"}));
    ASSERT_TRUE(kParameters.contains(name)) << "no count for this preset";
    EXPECT_EQ(j["parameters"]["total"], kParameters.at(name));
    EXPECT_EQ(j["parameters"]["active"], kParameters.at(name));
    int64_t modules = 0, memory = 0;
    for (const auto& [module, count] : j["parameters"]["by_module"].items()) modules += count.get<int64_t>();
    EXPECT_EQ(modules, kParameters.at(name));
    for (const char* part : {"parameters", "gradients", "optimizer", "saved", "scratch"}) memory += j["memory"][part].get<int64_t>();
    EXPECT_EQ(j["memory"]["peak_bytes"], memory);
    EXPECT_TRUE(j["seconds_estimate"].is_null());
  }
}

TEST_F(Cli, S80_FlopsOfGpt2ByHand) {
  const auto j = plan(work, preset("gpt2-124m"));
  const int64_t C = 768, V = 50257, T = 1024, L = 12;
  const int64_t weights = L * (3 * C * C + C * C + 8 * C * C) + V * C;                 // the tied head multiplies, the tables do not
  EXPECT_EQ(weights, 123532032);
  EXPECT_EQ(j["flops_per_token"], 6 * weights + 6 * L * C * T);                        // the causal half that is computed
  EXPECT_EQ(j["flops_per_token"], 797815296);
  EXPECT_EQ(j["parameters"]["padded"], 124439808 + (50304 - 50257) * C);
  EXPECT_EQ(j["steps"], 19560);
  EXPECT_EQ(j["tokens"], int64_t(19560) * 512 * 1024);
  const Finished table = work.run({"plan", preset("gpt2-124m"), "--no-measure"});
  for (const char* part : {"124,439,808", "797.8 MFLOP", "803.5 MFLOP", "10,255,073,280 tokens"})
    EXPECT_TRUE(contains(table.out, part)) << part << "\n" << table.out;
}

TEST_F(Cli, S80_AWindowCountsWhatItReaches) {
  const auto whole = plan(work, preset("dense-modern")),
             window = plan(work, preset("dense-modern"), {"model.layers[0].pattern[0].attention.window=256"});
  EXPECT_EQ(whole["flops_per_token"].get<int64_t>() - window["flops_per_token"].get<int64_t>(), 6 * 12 * 768 * (2048 - 256));
}

TEST_F(Cli, PlanMemoryOfGpt2) {                                        // BF16 values; F32 gradients, two moments and the master
  const auto m = plan(work, preset("gpt2-124m"))["memory"];
  const int64_t padded = 124439808 + (50304 - 50257) * 768;
  EXPECT_EQ(m["parameters"], 2 * padded);
  EXPECT_EQ(m["gradients"], 4 * padded);
  EXPECT_EQ(m["optimizer"], 12 * padded);
}

TEST_F(Cli, RecomputeSavesMemory) {
  const auto none = plan(work, preset("gpt2-124m")), all = plan(work, preset("gpt2-124m"), {"model.recompute=all"});
  EXPECT_LT(all["memory"]["saved"].get<int64_t>() * 3, none["memory"]["saved"].get<int64_t>());
}

TEST_F(Cli, WhatDoesNotFitGivesBothNumbers) {
  const Words huge = {preset("smoke"), "train.batch=16777216", "train.micro_batch=16777216"};
  Finished f = work.run({"plan", huge[0], huge[1], huge[2], "--json"});                   // no measurement of what does not fit
  EXPECT_EQ(f.code, 3);
  EXPECT_GT(f.json()["memory"]["peak_bytes"].get<int64_t>(), int64_t(1) << 40);
  EXPECT_TRUE(contains(f.err, "GiB but") && contains(f.err, "available") && contains(f.err, "micro_batch")) << f.err;
  work.refused(3, {"GiB but", "available", "micro_batch"}, {"train", huge[0], huge[1], huge[2]});
}

TEST_F(Cli, S05_CountsBeyondTheirTypesAreRefused) {
  const Words more = {"model.context=16777216", "train.batch=16777216"};
  work.refused(2, {"train.micro_batch", "16777216 x 16777216"},
               {"plan", preset("smoke"), more[0], more[1], "train.sequence=16777216", "train.micro_batch=16777216"});
  work.refused(2, {"train.steps", "1099511627776"},
               {"plan", preset("smoke"), more[0], more[1], "train.sequence=64", "train.micro_batch=1", "train.steps=1099511627776"});
}

TEST_F(Cli, TheEstimateIsANumberOfSeconds) {
  const auto j = work.json({"plan", preset("smoke")});
  EXPECT_GT(j["seconds_estimate"].get<double>(), 0);
  EXPECT_LT(j["seconds_estimate"].get<double>(), 600);
}

}  // namespace
}  // namespace wyvern
