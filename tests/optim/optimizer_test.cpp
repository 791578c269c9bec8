// Groups and their state: who is in which group, who decays, what a BF16 model keeps in F32.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "optim/optimizer.h"
#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

// A model's worth of parameters without the model.
struct Toy {
  explicit Toy(DType dtype) : arena(1 << 16, true), state(1 << 16, true), mesh(Mesh::single()), params(arena, mesh, dtype) {
    add("embed.tokens.weight", Role::embedding, {4, 2});
    add("layers.0.attn.qkv.weight", Role::matrix, {6, 2});
    add("layers.0.attn.qkv.bias", Role::vector, {6});
    add("final.norm.weight", Role::vector, {2});
    params.zero_grad(stream);
    fill_values(1);
  }
  void add(const char* name, Role role, const Shape& shape) { params.add(stream, {.name = name, .shape = shape, .role = role}); }
  static void fill(Tensor t, double x) {
    with_float(t.dtype, [&]<class T>(T) { for (int64_t i = 0; i < t.numel(); i++) as<T>(t)[i] = T(acc_t<T>(x)); });
  }
  void fill_values(double x) { for (const auto& p : params.all()) fill(p->value, x); }
  void fill_gradients(double x) { for (const auto& p : params.all()) fill(p->grad, x); }
  static double first(Tensor t) {
    return with_float(t.dtype, [&]<class T>(T) { return double(acc_t<T>(as<T>(t)[0])); });
  }
  double value(const std::string& name) const { return first(params.at(name).value); }
  std::unique_ptr<Optimizer> optimizer(const std::string& groups) {
    tree = ConfigTree::parse("optim:\n  groups:\n" + groups, "run.yaml");
    config = OptimConfig::from(tree.root().map("optim", ""), 1000);
    tree.check();
    return make_optimizer(stream, state, params, config);
  }
  Stream stream;
  Arena arena, state;
  Mesh mesh;
  ParamStore params;
  ConfigTree tree;
  OptimConfig config;
};

const char* kDecayed = "    - {match: {role: [matrix, embedding]}, kind: adamw, lr: 0.01, weight_decay: 0.1}\n";
const char* kPlain = "    - {match: {role: [vector]}, kind: adamw, lr: 0.01}\n";
std::string both() { return std::string(kDecayed) + kPlain; }

TEST(Groups, AnUncoveredParameterIsNamed) {
  Toy t(DType::f32);
  expect_error(kUsage, {"final.norm.weight (role vector) matches no group", "layers.0.attn.qkv.bias"}, [&] { t.optimizer(kDecayed); });
}

TEST(Groups, ADoublyCoveredParameterNamesBothGroups) {
  Toy t(DType::f32);
  const std::string third = "    - {match: {name: \"layers.*.attn.*\"}, kind: adamw, lr: 0.1}\n";
  expect_error(kUsage, {"layers.0.attn.qkv.weight (role matrix) matches optim.groups[0] and optim.groups[2]", "layers.0.attn.qkv.bias"},
               [&] { t.optimizer(both() + third); });
}

TEST(Groups, AGroupThatMatchesNothingIsNamed) {
  Toy t(DType::f32);
  expect_error(kUsage, {"optim.groups[2]", "match"},
               [&] { t.optimizer(both() + "    - {match: {name: \"layers.*.moe.*\"}, kind: adamw, lr: 0.1}\n"); });
  expect_error(kUsage, {"optim.groups[2]", "match"},
               [&] { t.optimizer(both() + "    - {match: {role: [head]}, kind: adamw, lr: 0.1}\n"); });
}

TEST(Groups, RoleAndNameTogetherNarrow) {
  Toy t(DType::f32);
  t.optimizer(std::string(kDecayed) +
              "    - {match: {role: [vector], name: \"*.bias\"}, kind: adamw, lr: 0.1}\n"
              "    - {match: {name: [\"*norm*\"]}, kind: adamw, lr: 0.1}\n");
  const std::string text = describe_groups(t.params, t.config);
  EXPECT_NE(text.find("2 tensors, 20 parameters, lr 0.01, weight decay 0.1"), std::string::npos) << text;
  EXPECT_NE(text.find("1 tensors, 6 parameters"), std::string::npos) << text;
  EXPECT_NE(text.find("1 tensors, 2 parameters"), std::string::npos) << text;
}

TEST(Groups, BadEntriesAreRefused) {
  Toy t(DType::f32);
  expect_error(kUsage, {"unknown role 'matrices'", "matrix", "run.yaml:3"},
               [&] { t.optimizer("    - {match: {role: [matrices]}, kind: adamw, lr: 0.1}\n"); });
  expect_error(kUsage, {"by role or by name"}, [&] { t.optimizer("    - {kind: adamw, lr: 0.1}\n"); });
  expect_error(kUsage, {"lr"}, [&] { t.optimizer("    - {match: {role: [vector]}, kind: adamw}\n"); });
  expect_error(kUsage, {"betas", "two numbers"},
               [&] { t.optimizer("    - {match: {role: [vector]}, kind: adamw, lr: 0.1, betas: [0.9, 1.0]}\n"); });
  expect_error(kUsage, {"adamv", "adamw"}, [&] { t.optimizer("    - {match: {role: [vector]}, kind: adamv, lr: 0.1}\n"); });
}

TEST(Optimizer, S27_OnlyWhatIsDocumentedDecays) {
  Toy t(DType::f64);
  auto o = t.optimizer(both());
  for (int64_t s = 0; s < 10; s++) o->step(t.stream, {.step = s});
  const double shrunk = std::pow(1 - 0.01 * 0.1, 10);
  EXPECT_NEAR(t.value("embed.tokens.weight"), shrunk, 1e-14);
  EXPECT_NEAR(t.value("layers.0.attn.qkv.weight"), shrunk, 1e-14);
  EXPECT_EQ(t.value("layers.0.attn.qkv.bias"), 1);
  EXPECT_EQ(t.value("final.norm.weight"), 1);
}

TEST(Optimizer, S29_TheFirstUpdateIsTheLearningRate) {
  Toy t(DType::f64);
  auto o = t.optimizer("    - {match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 0.01, eps: 1.0e-30}\n");
  o->visit_state([](const std::string&, const Param&, Tensor) {});
  t.fill_gradients(1);
  o->step(t.stream, {.step = 0});
  EXPECT_NEAR(t.value("final.norm.weight"), 1 - 0.01, 1e-15);
}

TEST(Optimizer, S28_Bf16MovesThroughItsMaster) {
  Toy t(DType::bf16);
  auto o = t.optimizer("    - {match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 6.0e-4, eps: 1.0e-12}\n");
  t.fill_gradients(0.5);                                    // a constant gradient: every update is the learning rate
  for (int64_t s = 0; s < 100; s++) o->step(t.stream, {.step = s});
  EXPECT_NEAR(t.value("final.norm.weight"), 0.94, 0.94 / 256);      // 8 bits of BF16; without a master it would still be 1
}

TEST(Optimizer, DecayAloneMovesBf16) {
  Toy t(DType::bf16);
  auto o = t.optimizer("    - {match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 0.01, weight_decay: 0.01}\n");
  for (int64_t s = 0; s < 1000; s++) o->step(t.stream, {.step = s});
  EXPECT_NEAR(t.value("final.norm.weight"), std::pow(1 - 1e-4, 1000), 1.0 / 256);
}

TEST(Optimizer, SchedulesAndClippingReachTheUpdate) {
  Toy t(DType::f64);
  auto o = t.optimizer(
      "    - {match: {role: [matrix, embedding, vector]}, kind: adamw, lr: {value: 0.01, kind: linear},\n"
      "       weight_decay: {value: 0.5, kind: linear, final: 0.5}}\n"
      "  schedule: {kind: linear}\n");
  o->step(t.stream, {.step = 500});                         // lr 0.01 / 2 / 2, decay 0.5 * 0.75; gradients are zero
  EXPECT_NEAR(t.value("final.norm.weight"), 1 - 0.0025 * 0.375, 1e-15);

  Toy clipped(DType::f64);
  auto c = clipped.optimizer("    - {match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 0.01, eps: 1}\n");
  clipped.fill_gradients(8);
  c->step(clipped.stream, {.step = 0, .grad_scale = 0.125});        // m and v see a gradient of 1: update lr * 1 / (1 + eps)
  EXPECT_NEAR(clipped.value("final.norm.weight"), 1 - 0.01 / 2, 1e-15);
}

TEST(Optimizer, S30_EveryStateExistsFromTheStartUnderItsName) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Toy t(dtype);
    auto o = t.optimizer(both());
    std::set<std::string> names;
    o->visit_state([&](const std::string& what, const Param& p, Tensor state) {
      names.insert(p.name + "/" + what);
      EXPECT_EQ(shape_of(state), p.shape) << p.name << "/" << what;
      EXPECT_EQ(state.dtype, DType::f32);
      EXPECT_EQ(Toy::first(state), what == "master" ? 1 : 0) << p.name << "/" << what;
    });
    const size_t each = dtype == DType::bf16 ? 3 : 2;       // an F32 value is its own master
    EXPECT_EQ(names.size(), each * t.params.all().size());
    EXPECT_TRUE(names.contains("layers.0.attn.qkv.bias/m") && names.contains("layers.0.attn.qkv.bias/v"));
    EXPECT_EQ(names.contains("layers.0.attn.qkv.bias/master"), dtype == DType::bf16);
  }
}

TEST(Optimizer, MastersAreTakenFromTheValuesAgain) {
  Toy t(DType::bf16);
  auto o = t.optimizer(both());
  t.fill_values(3);                                         // loaded behind the optimizer's back
  o->reset_masters(t.stream);
  o->visit_state([&](const std::string& what, const Param&, Tensor state) {
    if (what != "master") return;
    EXPECT_EQ(Toy::first(state), 3);
  });
  o->step(t.stream, {.step = 0});
  EXPECT_EQ(t.value("final.norm.weight"), 3);               // no gradient, no decay: a stale master would bring back 1
}

TEST(Optimizer, MasterRoundsToTheValue) {
  Toy t(DType::bf16);
  auto o = t.optimizer("    - {match: {role: [matrix, embedding, vector]}, kind: adamw, lr: 1.0e-3}\n");
  for (int64_t s = 0; s < 7; s++) {
    t.fill_gradients(double(s) - 2.5);
    o->step(t.stream, {.step = s});
    o->visit_state([&](const std::string& what, const Param& p, Tensor state) {
      if (what != "master") return;
      EXPECT_EQ(double(float(bf16(as<float>(state)[0]))), Toy::first(p.value)) << p.name << " after step " << s;
    });
  }
}

}  // namespace
}  // namespace wyvern
