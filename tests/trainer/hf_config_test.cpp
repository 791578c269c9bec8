// config.json -> YAML: numbers, both spellings, and everything that must be refused.
#include "trainer/interop/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

#include "tests/trainer/hf_model.h"

namespace wyvern {
namespace {

using nlohmann::json;

const json kGpt2 =
    json::parse(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024,
  "n_embd": 768, "n_layer": 12, "n_head": 12, "activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.2, "resid_pdrop": 0.3,
  "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "bos_token_id": 50256, "eos_token_id": 50256, "summary_type": "cls_index",
  "task_specific_params": {"text-generation": {"do_sample": true}}})");
const json kLlama =
    json::parse(R"({"model_type": "llama", "vocab_size": 1000, "max_position_embeddings": 128, "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 6, "num_attention_heads": 4, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "torch_dtype": "bfloat16"})");

json patched(json base, const json& patch) {
  base.merge_patch(patch);      // a null removes the key
  return base;
}
json family(const char* type, const json& patch = json::object()) {
  return patched(patched(kLlama, {{"model_type", type}, {"num_key_value_heads", 2}}), patch);
}

class HfConfigTest : public testing::Test {
 protected:
  std::string folder_of(const json& config) {
    folder.write("model/config.json", config.dump());
    return folder / "model";
  }
  HfConfig read(const json& config) { return read_hf_config(folder_of(config)); }
  HfModel build(const json& config) { return HfModel(hf_to_yaml(folder_of(config))); }
  void refused(const json& config, std::initializer_list<std::string> parts) {
    const std::string path = folder_of(config);
    expect_error(kUsage, parts, [&] { hf_to_yaml(path); });
    expect_error(kUsage, {"config.json"}, [&] { hf_to_yaml(path); });
  }
  TempFolder folder;
};

TEST_F(HfConfigTest, Gpt2AsPublished) {
  const HfModel m = build(kGpt2);
  const ModelConfig& c = m.config;
  EXPECT_EQ(m.name, "model");
  EXPECT_EQ(c.vocab_size, 50257);
  EXPECT_EQ(c.padded_vocab, 50304);
  EXPECT_EQ(c.context, 1024);
  EXPECT_EQ(c.channels, 768);
  EXPECT_EQ(c.layers.size(), 12u);
  EXPECT_TRUE(c.learned_positions && c.tied && c.residual_scale && c.norm.bias);
  EXPECT_EQ(c.norm.kind, NormConfig::layernorm);
  EXPECT_EQ(c.norm.eps, 1e-5);
  EXPECT_EQ(c.embedding_dropout, 0.2);
  EXPECT_EQ(c.residual_dropout, 0.3);
  EXPECT_EQ(c.layers[0].attention.number("dropout", {}, {}, ""), 0.1);
  EXPECT_EQ(c.layers[0].ffn.text("activation", {}, ""), "gelu_tanh");
  EXPECT_EQ(m.params.count(), 124'439'808);      // the published size
}

TEST_F(HfConfigTest, Gpt2Variants) {
  EXPECT_EQ(read(kGpt2).hidden, 3072);
  EXPECT_EQ(read(patched(kGpt2, {{"n_inner", 100}})).hidden, 100);
  EXPECT_EQ(read(patched(kGpt2, {{"activation_function", "gelu"}})).activation, "gelu_erf");
  EXPECT_EQ(read(patched(kGpt2, {{"activation_function", "gelu_pytorch_tanh"}})).activation, "gelu_tanh");
  EXPECT_FALSE(read(patched(kGpt2, {{"tie_word_embeddings", false}})).tied);
  EXPECT_EQ(read(patched(kGpt2, {{"attn_pdrop", nullptr}})).attention_dropout, 0.1);      // the default of transformers
  EXPECT_EQ(build(patched(kGpt2, {{"scale_attn_weights", false}})).config.layers[3].attention.number("scale", {}, {}, ""), 1);
  refused(patched(kGpt2, {{"activation_function", "relu"}}), {"activation_function", "\"relu\"", "gelu_new"});
  refused(patched(kGpt2, {{"scale_attn_by_inverse_layer_idx", true}}), {"scale_attn_by_inverse_layer_idx = true"});
  refused(patched(kGpt2, {{"reorder_and_upcast_attn", true}}), {"reorder_and_upcast_attn = true"});
  refused(patched(kGpt2, {{"add_cross_attention", true}}), {"add_cross_attention = true"});
  refused(patched(kGpt2, {{"n_head", 7}}), {"n_head = 7", "768"});
  refused(patched(kGpt2, {{"n_ctx", 512}}), {"n_ctx = 512", "1024"});
}

TEST_F(HfConfigTest, LlamaFamilies) {
  const HfConfig llama = read(kLlama);
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.rope->base, 500000);
  EXPECT_FALSE(llama.tied || llama.qkv_bias || llama.output_bias || llama.mlp_bias || llama.qk_norm);
  const HfConfig biased = read(patched(kLlama, {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);

  const HfConfig qwen2 = read(family("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm);
  EXPECT_EQ(build(family("qwen2")).config.layers[0].attention.text("bias", {}, ""), "qkv");
  const HfConfig qwen3 = read(family("qwen3", {{"tie_word_embeddings", true}}));
  EXPECT_TRUE(qwen3.qk_norm && qwen3.tied && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);                // the family's default, not 64 / 4
  EXPECT_EQ(read(family("mistral")).windows, std::vector<int64_t>(6, 4096));
  EXPECT_EQ(read(patched(kLlama, {{"rope_theta", nullptr}})).rope->base, 10000);

  EXPECT_EQ(build(kLlama).config.output_std(), 0.02);      // no 1 / sqrt(2 layers) here
}

TEST_F(HfConfigTest, WhatChangesTheModelIsRefusedByName) {
  refused(patched(kLlama, {{"hidden_act", "gelu"}}), {"hidden_act = \"gelu\"", "silu"});
  refused(family("mistral", {{"attention_bias", true}}), {"attention_bias = true"});
  refused(family("qwen2", {{"attention_bias", false}}), {"attention_bias = false"});      // transformers ignores it and has the biases
  refused(family("qwen3", {{"mlp_bias", true}}), {"mlp_bias = true"});
  refused(patched(kLlama, {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor = 0.5"});
  refused(patched(kLlama, {{"rope_interleaved", true}}), {"rope_interleaved = true"});
  refused(patched(kLlama, {{"quantization_config", {{"bits", 4}}}}), {"quantization_config = {\"bits\":4}", "not known"});
  refused(patched(kLlama, {{"logit_scale", 2}, {"new_gate", true}}), {"logit_scale = 2", "new_gate = true"});
  refused(patched(kLlama, {{"sliding_window", 5}}), {"sliding_window = 5"});
  refused(patched(kLlama, {{"model_type", "gemma2"}}), {"model_type = \"gemma2\"", "qwen3"});
  refused(patched(kLlama, {{"model_type", nullptr}}), {"model_type"});
  refused(patched(kLlama, {{"hidden_size", nullptr}}), {"hidden_size", "is needed"});
  refused(patched(family("mistral"), {{"num_key_value_heads", nullptr}}), {"num_key_value_heads", "is needed"});
  refused(patched(kLlama, {{"hidden_size", 64.5}}), {"hidden_size = 64.5", "integer"});
  refused(patched(kLlama, {{"num_attention_heads", 0}}), {"num_attention_heads = 0", "outside [1, "});
  refused(patched(kLlama, {{"num_hidden_layers", -2}}), {"num_hidden_layers = -2"});
  refused(patched(kLlama, {{"vocab_size", uint64_t(1) << 63}}), {"vocab_size = 9223372036854775808", "outside"});
  refused(patched(kLlama, {{"tie_word_embeddings", "yes"}}), {"tie_word_embeddings = \"yes\"", "true or false"});
  refused(patched(kLlama, {{"attention_dropout", 1.5}}), {"attention_dropout = 1.5", "outside"});
}

TEST_F(HfConfigTest, BrokenJsonIsRefused) {
  const auto broken = [&](const std::string& text, std::initializer_list<std::string> parts) {
    folder.write("broken/config.json", text);
    expect_error(kUsage, parts, [&] { hf_to_yaml(folder / "broken"); });
  };
  broken("{\"model_type\": \"gpt2\",}", {"config.json", "not valid JSON", "column"});
  broken("[]", {"config.json", "must be a JSON object"});
  broken(R"({"model_type": "gpt2", "n_head": 2, "n_head": 4})", {"\"n_head\" appears twice"});
  expect_error(kUsage, {"config.json", "no such file"}, [&] { hf_to_yaml(folder / "absent"); });
}

TEST_F(HfConfigTest, WindowsPerLayer) {
  using Windows = std::vector<int64_t>;
  const auto qwen = [](const json& patch) { return family("qwen2", patch); };
  const std::vector<std::string> mixed = {"full_attention", "full_attention",    "sliding_attention",
                                          "full_attention", "sliding_attention", "sliding_attention"};
  EXPECT_EQ(read(family("mistral", {{"sliding_window", 11}})).windows, Windows(6, 11));
  json none = family("mistral");
  none["sliding_window"] = nullptr;
  EXPECT_EQ(read(none).windows, Windows(6, 0));
  EXPECT_EQ(read(qwen({{"sliding_window", 9}})).windows, Windows(6, 0));                                // not in use
  EXPECT_EQ(read(qwen({{"sliding_window", 9}, {"use_sliding_window", true}})).windows, Windows(6, 0));  // from layer 28 on
  EXPECT_EQ(read(qwen({{"sliding_window", 9}, {"use_sliding_window", true}, {"max_window_layers", 4}})).windows,
            (Windows{0, 0, 0, 0, 9, 9}));
  const json by_type = qwen({{"sliding_window", 9}, {"use_sliding_window", true}, {"max_window_layers", 4}, {"layer_types", mixed}});
  EXPECT_EQ(read(by_type).windows, (Windows{0, 0, 9, 0, 9, 9}));
  const HfModel m = build(by_type);
  ASSERT_EQ(m.config.layers.size(), 6u);
  for (size_t l = 0; l < 6; l++)
    EXPECT_EQ(m.config.layers[l].attention.integer_or_none("window", {}, {}, "").value_or(0), (Windows{0, 0, 9, 0, 9, 9}[l])) << l;

  refused(qwen({{"layer_types", mixed}}), {"layer_types", "no window"});
  refused(qwen({{"layer_types", {"full_attention"}}}), {"layer_types", "1 entries", "6"});
  refused(qwen({{"layer_types", std::vector<std::string>(6, "chunked_attention")}}), {"layer_types", "chunked_attention"});
}

TEST_F(HfConfigTest, RopeRules) {
  const auto hub = [](const json& scaling) { return patched(kLlama, {{"rope_scaling", scaling}}); };
  const auto rope = [&](const json& scaling) { return *read(hub(scaling)).rope; };
  EXPECT_EQ(rope({{"rope_type", "default"}}).scaling, RopeConfig::none);
  EXPECT_EQ(rope({{"type", "linear"}, {"factor", 2.5}}).factor, 2.5);
  const RopeConfig yarn = rope({{"rope_type", "yarn"},
                                {"factor", 4},
                                {"original_max_position_embeddings", 32},
                                {"beta_fast", 16},
                                {"beta_slow", 0},
                                {"truncate", false}});
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 1);                  // transformers takes 0 for "not given"
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.original_context, 32);
  EXPECT_DOUBLE_EQ(rope_magnitude(yarn), 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(rope({{"rope_type", "yarn"}, {"factor", 4}}).original_context, 128);  // max_position_embeddings
  EXPECT_EQ(rope({{"rope_type", "yarn"}, {"original_max_position_embeddings", 16}}).factor, 8);                    // 128 / 16
  EXPECT_EQ(rope_magnitude(rope({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 1.25}, {"mscale", 2}, {"mscale_all_dim", 3}})),
            1.25);
  EXPECT_DOUBLE_EQ(rope_magnitude(rope({{"rope_type", "yarn"}, {"factor", 40}, {"mscale", 0.707}, {"mscale_all_dim", 1.0}})),
                   (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1));
  EXPECT_DOUBLE_EQ(rope_magnitude(rope({{"rope_type", "yarn"}, {"factor", 40}, {"mscale", 0.707}, {"mscale_all_dim", 0}})),
                   0.1 * std::log(40.0) + 1);
  // What the YAML says is what the model reads.
  const auto through_yaml = read_rope(
      build(hub({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 1.25}, {"truncate", false}})).config.layers[0].attention);
  EXPECT_EQ(through_yaml->magnitude, 1.25);
  EXPECT_FALSE(through_yaml->truncate);
  EXPECT_EQ(through_yaml->base, 500000);

  refused(hub({{"rope_type", "dynamic"}, {"factor", 2}}), {"rope_scaling.rope_type = \"dynamic\"", "not implemented"});
  refused(hub({{"type", "longrope"}, {"factor", 2}}), {"rope_scaling.type = \"longrope\""});
  refused(hub({{"type", "yarn"}, {"rope_type", "linear"}, {"factor", 2}}), {"rope_scaling.type = \"yarn\"", "linear"});
  refused(hub({{"type", "linear"}}), {"rope_scaling.factor", "is needed"});
  refused(hub({{"type", "linear"}, {"factor", 0.5}}), {"rope_scaling.factor = 0.5"});
  refused(hub({{"type", "linear"}, {"factor", 2}, {"mrope_section", {1, 2}}}), {"rope_scaling.mrope_section = [1,2]"});
  refused(hub({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}}),
          {"rope_scaling.original_max_position_embeddings"});
  refused(hub("linear"), {"rope_scaling", "JSON object"});
  const json v5 = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  refused(patched(kLlama, v5), {"rope_theta = 500000.0", "contradicts", "10000"});
  refused(patched(hub({{"type", "linear"}, {"factor", 2}}), v5), {"rope_scaling", "rope_parameters is given too"});
  refused(patched(kLlama, {{"rope_theta", nullptr}, {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
          {"rope_parameters.full_attention"});
  EXPECT_EQ(read(patched(patched(kLlama, {{"rope_theta", nullptr}}), v5)).rope->base, 10000);
}

TEST_F(HfConfigTest, NamesAreSafeInYaml) {
  folder.write("a b: \"x\"/config.json", kLlama.dump());
  EXPECT_EQ(HfModel(hf_to_yaml(folder / "a b: \"x\"/")).name, "a-b---x-");
}

// ---- golden folders: both spellings are the same model ------------------------------------------------------------------

class HfConfigGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(hf_golden(GetParam()))) GTEST_SKIP() << "no " << hf_golden(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Folders, HfConfigGolden, testing::ValuesIn(kHfCases), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(HfConfigGolden, BothSpellingsGiveTheSameModel) {
  TempFolder folder;
  folder.write(std::string(GetParam()) + "/config.json", slurp(hf_golden(GetParam()) + "/config_hub.json"));
  const std::string yaml = hf_to_yaml(hf_golden(GetParam()));
  EXPECT_EQ(hf_to_yaml(folder / GetParam()), yaml);
  const HfModel m(yaml);                         // parses, and every layer accepts its map
  EXPECT_EQ(m.name, GetParam());
}

struct Expected {
  const char* folder;
  int64_t vocab, context, channels, layers, heads, kv_heads, head_dim, hidden, window;
  double eps, base;
  bool tied;
};
TEST(HfConfigNumbers, OfGoldenFoldersAreRead) {
  const Expected table[] = {
      {"hf-gpt2", 112, 64, 32, 3, 4, 4, 8, 128, 0, 1e-5, 0, true},
      {"hf-gpt2-hub", 97, 50, 40, 2, 5, 5, 8, 96, 0, 1e-5, 0, true},
      {"hf-llama", 112, 128, 32, 2, 4, 2, 8, 72, 0, 1e-4, 1e4, false},
      {"hf-llama-bf16-sharded", 101, 128, 32, 2, 4, 2, 12, 72, 0, 1e-6, 1e4, false},
      {"hf-mistral", 112, 128, 32, 2, 4, 2, 8, 72, 11, 1e-6, 1e4, false},
      {"hf-qwen2", 112, 128, 32, 2, 4, 2, 8, 72, 0, 1e-4, 1e4, false},
      {"hf-qwen3", 112, 128, 32, 2, 4, 2, 12, 72, 0, 1e-6, 1e6, true},
  };
  if (!std::filesystem::exists(hf_golden(""))) GTEST_SKIP() << "no " << hf_golden("");
  for (const Expected& e : table) {
    SCOPED_TRACE(e.folder);
    const HfModel m(hf_to_yaml(hf_golden(e.folder)));
    const Node &attention = m.config.layers[1].attention, &ffn = m.config.layers[1].ffn;
    EXPECT_EQ(m.config.vocab_size, e.vocab);
    EXPECT_EQ(m.config.context, e.context);
    EXPECT_EQ(m.config.channels, e.channels);
    EXPECT_EQ(int64_t(m.config.layers.size()), e.layers);
    EXPECT_EQ(m.config.norm.eps, e.eps);
    EXPECT_EQ(m.config.tied, e.tied);
    EXPECT_EQ(attention.integer("heads", {}, {}, ""), e.heads);
    EXPECT_EQ(attention.integer("kv_heads", {}, {}, ""), e.kv_heads);
    EXPECT_EQ(attention.integer("head_dim", {}, {}, ""), e.head_dim);
    EXPECT_EQ(attention.integer_or_none("window", {}, {}, "").value_or(0), e.window);
    EXPECT_EQ(ffn.integer("hidden", {}, {}, ""), e.hidden);
    const auto rope = read_rope(attention);
    EXPECT_EQ(rope ? rope->base : 0, e.base);
    EXPECT_EQ(m.config.embedding_dropout + m.config.residual_dropout, 0);
  }
}

}  // namespace
}  // namespace wyvern
