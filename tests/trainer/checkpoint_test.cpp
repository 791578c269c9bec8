// Checkpoints: what comes back, what is refused, and what survives. The kinds of fault carry the numbers of the list of known ones.
#include "trainer/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/elementwise.h"
#include "tests/data/temp_folder.h"
#include "tests/trainer/toy_store.h"
#include "trainer/checkpoint_contents.h"
#include "trainer/checkpoint_files.h"

namespace wyvern {
namespace {

CheckpointMeta meta_of(int64_t step) {
  return {.step = step, .tokens = step * 1000, .compute = "bf16", .config = "name: toy\n# \xc3\xa9\n", .tokenizer = "",
          .train_state = "{\"epoch\": 3}"};
}

bool same_bits(const Tensor& a, const Tensor& b) { return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, size_t(a.bytes())) == 0; }

std::string save(const std::string& folder, Toy& toy, int64_t step) {
  return save_checkpoint(folder, meta_of(step), toy.store, &toy.optimizer, toy.stream);
}

TEST(Checkpoint, RoundTripIsBitwise) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    TempFolder temp;
    Toy saved(dtype), loaded(dtype);
    saved.fill(1);
    with_float(dtype, [&]<class T>(T) { as<T>(saved.store.at("embed.weight").value)[9] = T(std::numeric_limits<float>::infinity()); });
    with_float(dtype, [&]<class T>(T) { as<T>(saved.store.at("embed.weight").value)[10] = T(std::numeric_limits<float>::quiet_NaN()); });
    const std::string path = save(temp / "a", saved, 7);
    EXPECT_EQ(path, checkpoint_path(temp / "a", 7));
    const int64_t version = loaded.store.version();
    load_checkpoint(path, loaded.store, &loaded.optimizer, loaded.stream, false);
    EXPECT_TRUE(loaded.bytes() == saved.bytes()) << name_of(dtype);
    EXPECT_GT(loaded.store.version(), version);

    const CheckpointMeta meta = read_checkpoint_meta(path), wanted = meta_of(7);
    EXPECT_EQ(meta.step, 7);
    EXPECT_EQ(meta.tokens, 7000);
    EXPECT_EQ(meta.compute, wanted.compute);
    EXPECT_EQ(meta.config, wanted.config);
    EXPECT_EQ(meta.tokenizer, "");
    EXPECT_EQ(meta.train_state, wanted.train_state);
  }
}

TEST(Checkpoint, ValuesConvertOnlyWhenAsked) {
  TempFolder temp;
  Toy f32(DType::f32), bf(DType::bf16), back(DType::f32), f64(DType::f64);
  f32.fill(2);
  const std::string path = save_checkpoint(temp / "a", meta_of(1), f32.store, nullptr, f32.stream);
  expect_error(kCorrupt, {path, "type: /params/embed.weight is f32 in the checkpoint, bf16 here", "nothing was loaded"},
               [&] { load_checkpoint(path, bf.store, nullptr, bf.stream, false); });
  load_checkpoint(path, bf.store, nullptr, bf.stream, true);
  for (const auto& p : f32.store.all()) {
    const Param& q = bf.store.at(p->name);
    for (int64_t i = 0; i < p->value.numel(); i++) {
      const float x = as<float>(p->value)[i];
      if (q.keep_f32) ASSERT_EQ(as<float>(q.value)[i], x) << p->name;
      else ASSERT_EQ(as<bf16>(q.value)[i].bits, bf16(x).bits) << p->name << " " << i;
    }
  }
  const std::string narrow = save_checkpoint(temp / "b", meta_of(1), bf.store, nullptr, bf.stream);
  load_checkpoint(narrow, back.store, nullptr, back.stream, true);
  load_checkpoint(narrow, f64.store, nullptr, f64.stream, true);
  const int64_t at = 17;
  EXPECT_EQ(as<float>(back.store.at("embed.weight").value)[at], float(as<bf16>(bf.store.at("embed.weight").value)[at]));
  EXPECT_EQ(as<double>(f64.store.at("embed.weight").value)[at], double(float(as<bf16>(bf.store.at("embed.weight").value)[at])));
}

TEST(Checkpoint, S30_StateOfEveryParameterComesBack) {
  TempFolder temp;
  Toy saved(DType::bf16), loaded(DType::bf16);
  saved.fill(3);
  const std::string path = save(temp / "a", saved, 0);                   // before any step was taken
  std::string report = show_checkpoint(path, false);
  for (const auto& p : saved.store.all()) EXPECT_NE(report.find("/optim/" + p->name + "/m "), std::string::npos) << report;
  EXPECT_NE(report.find("/optim/embed.weight/master "), std::string::npos);
  EXPECT_EQ(report.find("/optim/layers.2.norm.weight/master "), std::string::npos) << "an f32 value needs no master";
  load_checkpoint(path, loaded.store, &loaded.optimizer, loaded.stream, false);
  EXPECT_TRUE(loaded.bytes() == saved.bytes());

  const std::string bare = save_checkpoint(temp / "b", meta_of(0), saved.store, nullptr, saved.stream);
  expect_error(kCorrupt, {"missing: /optim/embed.weight/m f32 (64, 8)", "missing: /optim/layers.10.wide.weight/master"},
               [&] { load_checkpoint(bare, loaded.store, &loaded.optimizer, loaded.stream, true); });
}

TEST(Checkpoint, S31_TheTypeOfStateIsPartOfTheContract) {
  TempFolder temp;
  Toy toy(DType::f32);
  ToyOptimizer narrow(toy.store, DType::bf16), narrow_again(toy.store, DType::bf16);
  toy.fill(4);
  const auto first = [](Optimizer& o) {
    Tensor found;
    o.visit_state([&](const std::string&, const Param&, Tensor t) { if (!found) found = t; });
    return found;
  };
  cast(toy.stream, {.y = first(narrow), .x = first(toy.optimizer)});
  const std::string path = save_checkpoint(temp / "a", meta_of(1), toy.store, &narrow, toy.stream);
  load_checkpoint(path, toy.store, &narrow_again, toy.stream, false);
  EXPECT_TRUE(same_bits(first(narrow_again), first(narrow)));
  expect_error(kCorrupt, {"type: /optim/embed.weight/m is bf16 in the checkpoint, f32 here"},
               [&] { load_checkpoint(path, toy.store, &toy.optimizer, toy.stream, false); });
  load_checkpoint(path, toy.store, &toy.optimizer, toy.stream, true);
  EXPECT_EQ(as<float>(first(toy.optimizer))[3], float(as<bf16>(first(narrow))[3]));
}

TEST(Checkpoint, S65_StrictLoadListsEveryDifference) {
  TempFolder temp;
  Toy saved(DType::f32, Mesh::single(), 24, "layers.3.gone.weight"), other(DType::f32, Mesh::single(), 12, "layers.3.new.weight");
  saved.fill(5);
  other.fill(6);
  const std::string path = save(temp / "a", saved, 1), before = other.bytes();
  for (bool convert : {false, true})
    expect_error(kCorrupt, {path, "shape: /params/layers.2.qkv.weight is (24, 8) in the checkpoint, (12, 8) here",
                            "shape: /optim/layers.2.qkv.weight/m is (24, 8)", "missing: /params/layers.3.new.weight f32 (2, 2)",
                            "unexpected: /params/layers.3.gone.weight f32 (2, 2)", "unexpected: /optim/layers.3.gone.weight/m"},
                 [&] { load_checkpoint(path, other.store, &other.optimizer, other.stream, convert); });
  EXPECT_TRUE(other.bytes() == before) << "a refused load must change nothing";
}

TEST(Checkpoint, S66_TwoRanksSaveWhatOneLoads) {
  TempFolder temp;
  const std::string folder = checkpoint_path(temp / "a", 3);
  std::filesystem::create_directories(folder);
  Toy whole(DType::f32), again(DType::f32);
  whole.fill(8);
  std::vector<std::unique_ptr<Toy>> ranks;
  for (int rank = 0; rank < 2; rank++) {
    ranks.push_back(std::make_unique<Toy>(DType::f32, Mesh{self_comm(), std::make_unique<RankOf>(rank, 2)}));
    Toy& toy = *ranks.back();
    toy.fill(9);
    for (const auto& p : toy.store.all())
      p->each([&](int64_t local, int64_t global, int64_t n) {
        std::copy_n(as<float>(whole.store.at(p->name).value) + global, n, as<float>(p->value) + local);
      });
    write_rank_file(folder + "/" + rank_file(rank), checkpoint_tensors(toy.store, nullptr), rank);
  }
  write_index(folder + "/" + kIndexFile, checkpoint_tensors(ranks[0]->store, nullptr), meta_of(3), ranks[0]->mesh);
  write_manifest(folder, 3, 3000, {kIndexFile, rank_file(0), rank_file(1)});

  load_checkpoint(folder, again.store, nullptr, again.stream, false);
  for (const auto& p : whole.store.all())
    EXPECT_TRUE(same_bits(again.store.at(p->name).value, p->value)) << p->name;
  for (int rank = 0; rank < 2; rank++) {                                 // and what one saved, two load
    Toy fresh(DType::f32, Mesh{self_comm(), std::make_unique<RankOf>(rank, 2)});
    load_checkpoint(save_checkpoint(temp / "b", meta_of(3), whole.store, nullptr, whole.stream), fresh.store, nullptr, fresh.stream, false);
    for (const auto& p : ranks[size_t(rank)]->store.all())
      EXPECT_TRUE(same_bits(fresh.store.at(p->name).value, p->value)) << p->name << " on rank " << rank;
  }
  EXPECT_NE(verify_checkpoint(folder, false).find("rank-00001.h5"), std::string::npos);
}

TEST(Checkpoint, S67_NothingToResumeFromIsAnError) {
  TempFolder temp;
  EXPECT_TRUE(list_checkpoints(temp / "never").empty());
  expect_error(kUsage, {"step-00000009", "no such checkpoint"}, [&] { read_checkpoint_meta(checkpoint_path(temp / "never", 9)); });
  temp.write("foreign/pytorch_model.bin", "x");
  expect_error(kCorrupt, {"foreign", "manifest.json", "checkpoint.h5", "rank-00000.h5"}, [&] { read_checkpoint_meta(temp / "foreign"); });
  expect_error(kUsage, {"pytorch_model.bin", "it is a file"}, [&] { read_checkpoint_meta(temp / "foreign/pytorch_model.bin"); });
}

TEST(Checkpoint, ManifestOfAnotherFormatOrVersion) {
  TempFolder temp;
  Toy toy(DType::f32);
  const std::string path = save(temp / "a", toy, 1), good = slurp(path + "/manifest.json");
  const auto with = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json j = nlohmann::json::parse(good);
    j[key] = value;
    temp.write("a/step-00000001/manifest.json", j.dump());
  };
  const auto refused = [&](std::initializer_list<std::string> parts) {
    expect_error(kCorrupt, parts, [&] { read_checkpoint_meta(path); });
  };
  with("version", 2);
  refused({"manifest.json", "checkpoint version 2", "reads version 1"});
  with("format", "other");
  refused({"format is \"other\"", "wyvern-checkpoint"});
  with("step", 2);
  refused({"step 1", "manifest.json of step 2"});
  EXPECT_TRUE(list_checkpoints(temp / "a").empty()) << "the folder says step 1";
  with("files", nlohmann::json::array());
  refused({"does not list checkpoint.h5"});
  with("files", {{{"name", "../x"}, {"bytes", 1}, {"xxh3", ""}}});
  refused({"names the file \"../x\""});
  temp.write("a/step-00000001/manifest.json", good.substr(0, good.size() / 2));
  refused({"manifest.json", "damaged"});
}

TEST(Checkpoint, ReportsHaveStableKeys) {
  TempFolder temp;
  Toy toy(DType::bf16);
  toy.fill(10);
  const std::string path = save(temp / "a", toy, 12);
  const auto shown = nlohmann::json::parse(show_checkpoint(path, true)), verified = nlohmann::json::parse(verify_checkpoint(path, true));
  EXPECT_EQ(shown["step"], 12);
  EXPECT_EQ(shown["tokens"], 12000);
  EXPECT_EQ(shown["verified"], false);
  EXPECT_EQ(verified["verified"], true);
  const auto embedding = nlohmann::json::parse(
      R"({"name": "/params/embed.weight", "shape": [64, 8], "dtype": "bf16", "bytes": 1024, "checksum": "ok"})");
  EXPECT_EQ(verified["datasets"][0], embedding);
  EXPECT_FALSE(shown["datasets"][0].contains("checksum"));
  EXPECT_EQ(shown["totals"]["params"]["elements"], 64 * 8 + 24 * 8 + 8 * 6 + 3 * 4 * 5 + 8 + 301 * 512);
  EXPECT_EQ(shown["totals"]["buffers"]["bytes"], 16);
  EXPECT_EQ(shown["files"].size(), 2u);
  const std::string table = show_checkpoint(path, false);
  EXPECT_LT(table.find("/params/layers.2.qkv"), table.find("/params/layers.10.wide")) << "numbers sort as numbers:\n" << table;
  EXPECT_NE(table.find("step 12, 12000 tokens"), std::string::npos) << table;
}

}  // namespace
}  // namespace wyvern
