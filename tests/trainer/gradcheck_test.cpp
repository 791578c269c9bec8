// Every preset's gradients, and proof that the check catches what it must.
#include <gtest/gtest.h>

#include <filesystem>

#include "trainer/gradcheck.h"
#include "trainer/run_config.h"

namespace wyvern {
namespace {

ConfigTree reduced(const std::string& file, std::vector<std::string> overrides = {}) {
  const ConfigTree full = ConfigTree::load(file, overrides);
  for (const std::string& o : gradcheck_overrides(full)) overrides.push_back(o);
  return ConfigTree::load(file, overrides);
}
std::string preset(const std::string& name) { return std::string(WYVERN_SOURCE) + "/configs/" + name; }

void expect_passes(const ConfigTree& tree) {
  const GradcheckResult r = gradcheck(tree, {.entries = 12});
  EXPECT_TRUE(r.passed) << to_table(r);
}

TEST(Gradcheck, EveryPreset) {
  int presets = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(WYVERN_SOURCE) + "/configs"))
    if (file.path().extension() == ".yaml") {
      SCOPED_TRACE(file.path().string());
      expect_passes(reduced(file.path().string()));
      presets++;
    }
  EXPECT_GE(presets, 8);
}

const std::vector<std::string> kNormPlaces = {"post", "both", "none"};
TEST(Gradcheck, NormPlaces) {
  for (const std::string& place : kNormPlaces) expect_passes(reduced(preset("gpt2-124m.yaml"), {"model.norm.place=" + place}));
}
TEST(Gradcheck, WindowSoftcapScaleAndDropout) {
  expect_passes(reduced(
      preset("dense-modern.yaml"),
      {"model.layers[0].pattern[0].attention.window=100", "model.layers[0].pattern[0].attention.softcap=3",
       "model.layers[0].pattern[0].attention.scale=0.7", "model.layers[0].pattern[0].attention.dropout=0.2", "model.head.softcap=4"}));
}
TEST(Gradcheck, RopeScalings) {
  for (const char* scaling : {"{kind: linear, factor: 2}", "{kind: ntk, factor: 4}", "{kind: llama3, factor: 8, original_context: 16}",
                              "{kind: yarn, factor: 4, original_context: 16}"})
    expect_passes(reduced(preset("dense-modern.yaml"), {std::string("model.layers[0].pattern[0].attention.rope.scaling=") + scaling}));
}
TEST(Gradcheck, RecomputeAndGeluErf) {
  expect_passes(reduced(preset("gpt2-124m.yaml"),
                        {"model.recompute=all", "model.layers[0].pattern[0].ffn.activation=gelu_erf", "model.head.tied=false"}));
}

// A defect of one part in 50,000 in one tensor, planted behind the backward, is found and named.
TEST(Gradcheck, CatchesAPlantedDefect) {
  for (const char* name : {"layers.0.attn.qkv.weight", "layers.0.ffn.down.bias", "embed.positions.weight", "final.norm.weight"}) {
    GradcheckOptions o{.entries = 12};
    o.tamper = [&](ParamStore& params) {
      Param& p = params.at(name);
      for (int64_t i = 0; i < p.grad.numel(); i++) as<double>(p.grad)[i] *= 1.00002;
    };
    const GradcheckResult r = gradcheck(reduced(preset("gpt2-124m.yaml")), o);
    EXPECT_FALSE(r.passed);
    EXPECT_EQ(r.worst_name, name);
    for (const GradcheckTensor& t : r.tensors) EXPECT_EQ(t.verdict == "FAIL", t.name == name) << t.name;
  }
}

}  // namespace
}  // namespace wyvern
