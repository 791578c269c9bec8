// Weights of a Hugging Face folder -> ParamStore -> the same names and shapes again.
#include "trainer/interop/hf_names.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/trainer/hf_model.h"
#include "trainer/interop/hf_config.h"
#include "trainer/interop/safetensors.h"

namespace wyvern {
namespace {

constexpr int64_t kBytes = int64_t(1) << 23;      // holds every golden model, F64 gradients included

// A GPT-2 of one layer, width 4, 2 heads, inner width 6, 5 tokens, 3 positions; element k of the whole file is k + 1.
struct TinyGpt2 {
  std::map<std::string, Shape> shapes = {{"wte.weight", {5, 4}},
                                         {"wpe.weight", {3, 4}},
                                         {"h.0.ln_1.weight", {4}},
                                         {"h.0.ln_1.bias", {4}},
                                         {"h.0.attn.c_attn.weight", {4, 12}},
                                         {"h.0.attn.c_attn.bias", {12}},
                                         {"h.0.attn.c_proj.weight", {4, 4}},
                                         {"h.0.attn.c_proj.bias", {4}},
                                         {"h.0.ln_2.weight", {4}},
                                         {"h.0.ln_2.bias", {4}},
                                         {"h.0.mlp.c_fc.weight", {4, 6}},
                                         {"h.0.mlp.c_fc.bias", {6}},
                                         {"h.0.mlp.c_proj.weight", {6, 4}},
                                         {"h.0.mlp.c_proj.bias", {4}},
                                         {"ln_f.weight", {4}},
                                         {"ln_f.bias", {4}}};
  std::map<std::string, std::vector<double>> values;
  std::string config = R"({"model_type": "gpt2", "vocab_size": 5, "n_positions": 3, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_inner": 6})";

  TinyGpt2() {
    double next = 1;
    for (const auto& [name, shape] : shapes) {
      std::vector<double>& v = values[name];
      v.resize(size_t(std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>())));
      for (double& x : v) x = next++;
    }
  }
  void add(const std::string& name, const Shape& shape, const std::vector<double>& v) {
    shapes[name] = shape;
    values[name] = v;
  }
  void write(const std::string& folder) const {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, shape] : shapes) {
      const std::vector<double>& v = values.at(name);
      tensors.push_back({name, "F64", shape, {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double)}});
    }
    std::filesystem::create_directories(folder);
    write_safetensors(folder + "/model.safetensors", tensors);
    std::ofstream(folder + "/config.json") << config;
  }
};

std::map<std::string, std::vector<double>> views(const std::string& folder, const HfModel& m, bool gradients = false) {
  std::map<std::string, std::vector<double>> out;
  for_each_hf_view(folder, m.params, [&](const TensorMap& map, const Shape& shape, const std::vector<double>& v) {
    EXPECT_EQ(int64_t(v.size()), std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>())) << map.hf;
    EXPECT_TRUE(out.emplace(map.hf, v).second) << map.hf << " twice";
  }, gradients);
  return out;
}

class HfNames : public testing::Test {
 protected:
  std::string path() const { return folder / "tiny"; }
  void write() { tiny.write(path()); }
  void refused(std::initializer_list<std::string> parts) {
    write();
    HfModel m(yaml, kBytes);
    expect_error(kCorrupt, parts, [&] { load_hf_values(path(), m.params, m.stream); });
    EXPECT_TRUE(std::isnan(as<float>(m.params.at("final.norm.weight").value)[0])) << "something was written";
    HfModel dry(yaml);
    expect_error(kCorrupt, parts, [&] { load_hf_values(path(), dry.params, dry.stream); });
  }
  void SetUp() override {
    write();
    yaml = hf_to_yaml(path());
  }
  TempFolder folder;
  TinyGpt2 tiny;
  std::string yaml;
};

TEST_F(HfNames, MatricesAreTransposedAndPaddingIsZero) {
  HfModel m(yaml, kBytes);
  const int64_t version = m.params.version();
  load_hf_values(path(), m.params, m.stream);
  EXPECT_GT(m.params.version(), version);
  const float* qkv = as<float>(m.params.at("layers.0.attn.qkv.weight").value);      // (12, 4) from (4, 12)
  const std::vector<double>& c_attn = tiny.values["h.0.attn.c_attn.weight"];
  for (size_t r = 0; r < 12; r++)
    for (size_t c = 0; c < 4; c++) EXPECT_EQ(qkv[r * 4 + c], c_attn[c * 12 + r]);
  const float* down = as<float>(m.params.at("layers.0.ffn.down.weight").value);     // (4, 6) from (6, 4)
  for (size_t r = 0; r < 4; r++)
    for (size_t c = 0; c < 6; c++) EXPECT_EQ(down[r * 6 + c], tiny.values["h.0.mlp.c_proj.weight"][c * 4 + r]);
  const std::pair<const char*, const char*> vectors[] = {{"h.0.ln_1.weight", "layers.0.attn.norm.weight"},
                                                         {"h.0.ln_1.bias", "layers.0.attn.norm.bias"},
                                                         {"h.0.ln_2.weight", "layers.0.ffn.norm.weight"},
                                                         {"h.0.ln_2.bias", "layers.0.ffn.norm.bias"},
                                                         {"h.0.attn.c_attn.bias", "layers.0.attn.qkv.bias"},
                                                         {"h.0.attn.c_proj.bias", "layers.0.attn.o.bias"},
                                                         {"h.0.mlp.c_fc.bias", "layers.0.ffn.up.bias"},
                                                         {"h.0.mlp.c_proj.bias", "layers.0.ffn.down.bias"},
                                                         {"ln_f.weight", "final.norm.weight"},
                                                         {"ln_f.bias", "final.norm.bias"},
                                                         {"wpe.weight", "embed.positions.weight"}};
  for (const auto& [hf, own] : vectors) {
    const float* x = as<float>(m.params.at(own).value);
    EXPECT_EQ(std::vector<double>(x, x + m.params.at(own).value.numel()), tiny.values[hf]) << hf;
  }
  const Param& tokens = m.params.at("embed.tokens.weight");
  ASSERT_EQ(tokens.value.dim[0], 64);
  for (size_t i = 0; i < 64 * 4; i++) EXPECT_EQ(as<float>(tokens.value)[i], i < 20 ? tiny.values["wte.weight"][i] : 0);
  EXPECT_EQ(views(path(), m), tiny.values);
}

// A round trip would not notice two tensors that changed places: this names the places.
TEST_F(HfNames, LlamaPiecesAreFusedInOrder) {
  folder.write("llama/config.json",
               R"({"model_type": "llama", "vocab_size": 5, "max_position_embeddings": 8, "hidden_size": 4, "intermediate_size": 7,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "attention_bias": true, "mlp_bias": true})");
  write_safetensors(folder / "llama/model.safetensors", {});
  std::string text;
  for (const TensorMap& m : hf_tensor_maps(folder / "llama")) {
    EXPECT_FALSE(m.transposed);
    text += fmt::format("{} = {}[{}:{}]\n", m.hf, m.own, m.row_begin, m.row_begin + m.rows);
  }
  EXPECT_EQ(text, R"(model.embed_tokens.weight = embed.tokens.weight[0:5]
model.layers.0.input_layernorm.weight = layers.0.attn.norm.weight[0:4]
model.layers.0.self_attn.q_proj.weight = layers.0.attn.qkv.weight[0:24]
model.layers.0.self_attn.q_proj.bias = layers.0.attn.qkv.bias[0:24]
model.layers.0.self_attn.k_proj.weight = layers.0.attn.qkv.weight[24:36]
model.layers.0.self_attn.k_proj.bias = layers.0.attn.qkv.bias[24:36]
model.layers.0.self_attn.v_proj.weight = layers.0.attn.qkv.weight[36:48]
model.layers.0.self_attn.v_proj.bias = layers.0.attn.qkv.bias[36:48]
model.layers.0.self_attn.o_proj.weight = layers.0.attn.o.weight[0:4]
model.layers.0.self_attn.o_proj.bias = layers.0.attn.o.bias[0:4]
model.layers.0.post_attention_layernorm.weight = layers.0.ffn.norm.weight[0:4]
model.layers.0.mlp.gate_proj.weight = layers.0.ffn.gate_up.weight[0:7]
model.layers.0.mlp.gate_proj.bias = layers.0.ffn.gate_up.bias[0:7]
model.layers.0.mlp.up_proj.weight = layers.0.ffn.gate_up.weight[7:14]
model.layers.0.mlp.up_proj.bias = layers.0.ffn.gate_up.bias[7:14]
model.layers.0.mlp.down_proj.weight = layers.0.ffn.down.weight[0:4]
model.layers.0.mlp.down_proj.bias = layers.0.ffn.down.bias[0:4]
model.norm.weight = final.norm.weight[0:4]
lm_head.weight = head.weight[0:5]
)");
}

TEST_F(HfNames, EveryTypeOfModelIsFilled) {
  tiny.values["ln_f.bias"][0] = 1.0 / 3;
  write();
  HfModel d(yaml, kBytes, DType::f64), b(yaml, kBytes, DType::bf16);
  load_hf_values(path(), d.params, d.stream);
  load_hf_values(path(), b.params, b.stream);
  EXPECT_EQ(views(path(), d), tiny.values);
  EXPECT_EQ(views(path(), b)["ln_f.bias"][0], double(float(bf16(1.0f / 3))));
}

TEST_F(HfNames, ConstantsOfOldFilesAreIgnored) {
  tiny.add("h.0.attn.bias", {1, 1, 3, 3}, std::vector<double>(9, 1));
  tiny.add("h.0.attn.masked_bias", {}, {-1e4});
  write();
  HfModel m(yaml, kBytes);
  EXPECT_NO_THROW(load_hf_values(path(), m.params, m.stream));
  tiny.add("h.1.attn.bias", {1, 1, 3, 3}, std::vector<double>(9, 1));      // there is no layer 1
  refused({"1 places", "h.1.attn.bias F64 (1, 1, 3, 3) is unexpected"});
}

TEST_F(HfNames, EverythingThatIsWrongIsListedAtOnce) {
  tiny.shapes.erase("h.0.ln_2.bias");
  tiny.add("h.0.mlp.c_fc.weight", {6, 4}, std::vector<double>(24, 1));
  tiny.add("h.0.attn.c_attn.q.weight", {2}, {1, 2});
  refused({"3 places", "h.0.ln_2.bias is missing", "h.0.mlp.c_fc.weight is (6, 4), expected (4, 6)",
           "h.0.attn.c_attn.q.weight F64 (2) is unexpected", "tiny"});
}

TEST_F(HfNames, AnotherModelIsNotFilled) {
  HfModel deeper(yaml + "    - times: 1\n      pattern:\n        - {attention: {kind: gqa, heads: 2}, ffn: {kind: swiglu, hidden: 8}}\n",
                 kBytes);
  expect_error(kCorrupt, {"layers.1.attn.qkv.weight has 12 rows", "fills 0"},
               [&] { load_hf_values(path(), deeper.params, deeper.stream); });
  expect_error(kCorrupt, {"layers.1.attn.qkv.weight"}, [&] { views(path(), deeper); });
  std::string text = yaml;
  text.replace(text.find("vocab_size: 5"), 13, "vocab_size: 6");
  HfModel wider(text, kBytes);
  expect_error(kCorrupt, {"embed.tokens.weight has 6 rows", "fills 5"}, [&] { load_hf_values(path(), wider.params, wider.stream); });
}

TEST_F(HfNames, ATiedHeadMayBeRepeated) {
  tiny.add("lm_head.weight", {5, 4}, tiny.values["wte.weight"]);
  write();
  HfModel m(yaml, kBytes);
  EXPECT_NO_THROW(load_hf_values(path(), m.params, m.stream));
  tiny.values["lm_head.weight"][7] += 1;
  refused({"lm_head.weight differs from wte.weight"});
}

TEST_F(HfNames, AnUntiedHeadIsNeeded) {
  tiny.config.replace(tiny.config.find("{"), 1, "{\"tie_word_embeddings\": false, ");
  write();
  yaml = hf_to_yaml(path());
  refused({"1 places", "lm_head.weight is missing"});
  tiny.add("lm_head.weight", {5, 4}, std::vector<double>(20, 3));
  write();
  HfModel m(yaml, kBytes);
  load_hf_values(path(), m.params, m.stream);
  EXPECT_EQ(views(path(), m), tiny.values);
}

TEST_F(HfNames, IntegersAreNoWeights) {
  write();
  std::string file = slurp(path() + "/model.safetensors");
  const size_t at = file.find("\"F64\"", file.find("ln_f.weight"));
  file.replace(at, 5, "\"I64\"");
  folder.write("tiny/model.safetensors", file);
  HfModel m(yaml, kBytes);
  expect_error(kCorrupt, {"ln_f.weight holds I64"}, [&] { load_hf_values(path(), m.params, m.stream); });
}

// ---- golden folders -------------------------------------------------------------------------------------------------

class HfNamesGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder = hf_golden(GetParam());
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
    yaml = hf_to_yaml(folder);
  }
  std::string folder, yaml;
};
INSTANTIATE_TEST_SUITE_P(Folders, HfNamesGolden, testing::ValuesIn(kHfCases), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(HfNamesGolden, ValuesComeBackBitForBit) {
  HfModel m(yaml, kBytes);
  load_hf_values(folder, m.params, m.stream);
  const SafetensorsFolder file(folder);
  auto seen = views(folder, m);
  size_t masks = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    if (name.ends_with(".attn.bias")) { masks++; continue; }
    ASSERT_TRUE(seen.contains(name)) << name;
    EXPECT_EQ(seen[name], values_of<double>(*tensor)) << name;
  }
  EXPECT_EQ(seen.size() + masks, file.tensors().size());
  for (const auto& p : m.params.all())
    for (int64_t i = 0; i < p->value.numel(); i++) ASSERT_FALSE(std::isnan(as<float>(p->value)[i])) << p->name << " " << i;
}

// The names and shapes under which `dump --names hf` writes gradients are those of the reference.
TEST_P(HfNamesGolden, GradientsHaveTheReferenceNames) {
  HfModel m(yaml, kBytes);
  std::map<std::string, Shape> expected, found;
  const SafetensorsFile file(folder + "/grads.safetensors");
  for (const SafetensorsTensor& t : file.tensors()) expected[t.name] = t.shape;
  for (const auto& p : m.params.all())
    for (int64_t i = 0; i < p->grad.numel(); i++) as<float>(p->grad)[i] = float(i);
  for_each_hf_view(folder, m.params, [&](const TensorMap& map, const Shape& shape, const std::vector<double>& v) {
    found[map.hf] = shape;
    const int64_t inner = int64_t(v.size()) / map.rows;
    EXPECT_EQ(v[0], double(map.row_begin * inner)) << map.hf;
    EXPECT_EQ(v.back(), double((map.row_begin + map.rows) * inner - 1)) << map.hf;
  }, true);
  EXPECT_EQ(found, expected);
}

// Two tensor-parallel ranks hold, block by block, what one rank holds.
TEST_P(HfNamesGolden, RanksHoldTheirShares) {
  if (std::string(GetParam()) == "hf-gpt2-hub") GTEST_SKIP() << "5 heads do not divide by 2";
  HfModel whole(yaml, kBytes);
  load_hf_values(folder, whole.params, whole.stream);
  for (int rank = 0; rank < 2; rank++) {
    HfModel half(yaml, kBytes, DType::f32, rank, 2);
    load_hf_values(folder, half.params, half.stream);
    for (const auto& p : half.params.all()) {
      const float *mine = as<float>(p->value), *all = as<float>(whole.params.at(p->name).value);
      int64_t counted = 0;
      p->each([&](int64_t local, int64_t global, int64_t n) {
        for (int64_t i = 0; i < n; i++) ASSERT_EQ(mine[local + i], all[global + i]) << p->name;
        counted += n;
      });
      EXPECT_EQ(counted, p->value.numel());
    }
    expect_error(kUsage, {"parallel.tp = 2"}, [&] { views(folder, half); });
  }
}

}  // namespace
}  // namespace wyvern
