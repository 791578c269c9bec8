// The dense Hugging Face cases: logits, losses, hidden states and gradients through `dump`, the greedy text through generation, five
// AdamW steps; tolerances are the cases' own.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/loader.h"
#include "kernels/cpu/isa/tier.h"
#include "tests/data/temp_folder.h"
#include "trainer/dump.h"
#include "trainer/generate.h"
#include "trainer/hdf5.h"
#include "trainer/interop/hf_names.h"
#include "trainer/interop/safetensors.h"
#include "trainer/model_source.h"

namespace wyvern {
namespace {

const char* kCases[] = {
    "hf-gpt2",    "hf-gpt2-hub", "hf-llama", "hf-llama-bf16-sharded", "hf-llama-rope-linear", "hf-llama-rope-llama3", "hf-llama-rope-yarn",
    "hf-mistral", "hf-qwen2",    "hf-qwen3"};
std::string folder_of(const std::string& name) { return std::string(WYVERN_SHARED) + "/golden/" + name; }

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}
std::vector<double> read_dataset(hid_t file, const std::string& path) {
  h5::Handle set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, path);
  h5::Handle space(H5Dget_space(set), H5Sclose, path);
  std::vector<double> v(size_t(H5Sget_simple_extent_npoints(space)));
  h5::check(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v.data()), path);
  return v;
}
std::vector<double> expected(const SafetensorsFile& file, const std::string& name) {
  for (const SafetensorsTensor& t : file.tensors())
    if (t.name == name) return values_of<double>(t);
  ADD_FAILURE() << file.path() << " has no " << name;
  return {};
}

// |got - want| <= tol |want| + floor
void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tol, double floor, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); i++) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(difference), tol * std::sqrt(norm) + floor) << what << ": relative error " << std::sqrt(difference / (norm + 1e-300));
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder = folder_of(GetParam());
    if (!std::filesystem::exists(folder + "/case.json")) GTEST_SKIP() << "no reference data at " << folder;
    info = read_json(folder + "/case.json");
  }
  std::string folder;
  nlohmann::json info;
};

TEST_P(Golden, DumpMatchesInF32) {
  TempFolder temp;
  const ModelSource m = find_model(folder);
  const double loss = dump_model(m, DType::f32, folder + "/case.json", temp / "out.h5", true);
  const auto& tol = info["tolerance"];
  EXPECT_NEAR(loss, info["loss_mean"].get<double>(), tol["loss"].get<double>() * info["loss_mean"].get<double>());
  h5::Handle out = h5::open_file(temp / "out.h5");
  const SafetensorsFile want(folder + "/expected.safetensors");
  expect_near(read_dataset(out, "/logits"), expected(want, "logits"), tol["logits"], 0, "logits");
  expect_near(read_dataset(out, "/token_loss"), expected(want, "loss"), tol["loss"], 0, "loss per token");
  for (size_t i = 0; i <= m.config.layers.size(); i++)
    expect_near(read_dataset(out, "/hidden/" + std::to_string(i)), expected(want, "hidden." + std::to_string(i)), tol["hidden"], 0,
                "hidden " + std::to_string(i));
  const SafetensorsFile grads(folder + "/grads.safetensors");
  size_t checked = 0;
  for (const auto& t : grads.tensors()) {
    expect_near(read_dataset(out, "/grads/" + t.name), expected(grads, t.name), tol["grad"], tol["grad_abs"], t.name);
    checked++;
  }
  EXPECT_GT(checked, 10u);
}

TEST_P(Golden, F64ReproducesTheReferenceToItsRounding) {
  TempFolder temp;
  const ModelSource m = find_model(folder);
  dump_model(m, DType::f64, folder + "/case.json", temp / "out.h5", true);
  h5::Handle out = h5::open_file(temp / "out.h5");
  const SafetensorsFile want(folder + "/expected.safetensors"), grads(folder + "/grads.safetensors");
  expect_near(read_dataset(out, "/logits"), expected(want, "logits"), 1e-7, 0, "logits");
  for (const auto& t : grads.tensors())
    expect_near(read_dataset(out, "/grads/" + t.name), expected(grads, t.name), 1e-7, info["tolerance"]["grad_abs"].get<double>() / 10,
                t.name);
}

TEST_P(Golden, Bf16StaysNearTheReference) {
  TempFolder temp;
  const ModelSource m = find_model(folder);
  const double loss = dump_model(m, DType::bf16, folder + "/case.json", temp / "out.h5", true);
  EXPECT_NEAR(loss, info["loss_mean"].get<double>(), 2e-2 * info["loss_mean"].get<double>());
  h5::Handle out = h5::open_file(temp / "out.h5");
  const SafetensorsFile want(folder + "/expected.safetensors");
  expect_near(read_dataset(out, "/logits"), expected(want, "logits"), 4e-2, 0, "logits");
}

TEST_P(Golden, GreedyTextMatches) {
  const ModelSource m = find_model(folder);
  const auto prompt = info["greedy"]["prompt"].get<std::vector<int32_t>>();
  Instance instance(m.config, DType::f32, nullptr, generation_passes(int64_t(prompt.size())));
  m.load(instance);
  const auto want = info["greedy"]["continuation"].get<std::vector<int32_t>>();
  const Generation g = generate(instance, prompt, {.tokens = int64_t(want.size()), .temperature = 0});
  EXPECT_EQ(g.tokens, want);
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Golden, testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) if (c == '-') c = '_';
  return name;
});

// One AdamW run of a case: losses before every step and after the last, gradient norms before clipping, then every weight's sum and norm.
void check_adamw(const std::string& name) {
  const std::string folder = folder_of(name);
  if (!std::filesystem::exists(folder + "/case.json")) GTEST_SKIP() << "no reference data at " << folder;
  const auto info = read_json(folder + "/case.json");
  const auto& run = info["training"]["adamw"];
  const auto& o = run["adamw"];
  const std::string yaml = "optim:\n  clip: " + o["clip_norm"].dump() + "\n  groups:\n";
  const auto group = [&](const char* roles, double decay) {
    return fmt::format("    - {{match: {{role: [{}]}}, kind: adamw, lr: {}, betas: [{}, {}], eps: {}, weight_decay: {}}}\n", roles,
                       o["lr"].get<double>(), o["betas"][0].get<double>(), o["betas"][1].get<double>(), o["eps"].get<double>(), decay);
  };
  const ConfigTree tree =
      ConfigTree::parse(yaml + group("matrix, embedding, head", o["weight_decay"].get<double>()) + group("vector", 0), "optim");
  const OptimConfig optim = OptimConfig::from(tree.root().map("optim", ""), 5);
  tree.check();

  const ModelSource m = find_model(folder);
  std::vector<int32_t> tokens, targets;
  for (const auto& row : info["tokens"]) for (const auto& t : row) tokens.push_back(t.get<int32_t>());
  for (const auto& row : info["targets"]) for (const auto& t : row) targets.push_back(t.get<int32_t>());
  const int64_t B = info["batch"].get<int64_t>(), T = info["length"].get<int64_t>();
  Instance model(m.config, DType::f32, &optim, {{B, T, Mode::train}});
  m.load(model);
  model.optimizer->reset_masters(model.stream);
  HostBatch host(B, T, tokens, targets);
  host.batch().loss_scale = 1.0 / double(host.valid_targets());
  const double tol = run["tolerance"].get<double>();
  for (int step = 0; step <= 5; step++) {
    model.params.zero_grad(model.stream);
    model.reset();
    Context c = model.context(host.batch(), Mode::train);
    const double loss = model.model.forward(c), want = run["losses"][size_t(step)].get<double>();
    EXPECT_NEAR(loss, want, tol * want) << "loss before step " << step;
    if (step == 5) break;
    model.model.backward(c);
    const double norm = model.params.grad_norm(model.stream), want_norm = run["grad_norms"][size_t(step)].get<double>();
    EXPECT_NEAR(norm, want_norm, tol * want_norm) << "gradient norm of step " << step;
    model.optimizer->step(model.stream, {.step = step, .grad_scale = std::min(1.0, optim.clip / (norm + 1e-6))});
  }
  size_t checked = 0;
  for_each_hf_view(folder, model.params, [&](const TensorMap& map, const Shape&, const std::vector<double>& values) {
    const auto& w = run["weights"][map.hf];
    double sum = 0, squares = 0;
    for (double v : values) { sum += v; squares += v * v; }
    const double l2 = w["l2"].get<double>(), t = w["tolerance"].get<double>();
    EXPECT_NEAR(std::sqrt(squares), l2, t * l2) << map.hf;
    EXPECT_NEAR(sum, w["sum"].get<double>(), t * l2 * std::sqrt(double(values.size()))) << map.hf;
    checked++;
  }, false);
  EXPECT_EQ(checked, run["weights"].size());
}

TEST(GoldenAdamW, S40_TiedGpt2FiveSteps) { check_adamw("hf-gpt2"); }
TEST(GoldenAdamW, LlamaFiveSteps) { check_adamw("hf-llama"); }

}  // namespace
}  // namespace wyvern
