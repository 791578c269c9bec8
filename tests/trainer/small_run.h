// A run small enough for a test: a config text, shards of made-up text, and the trainer around them.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/token_store.h"
#include "tests/data/temp_folder.h"
#include "trainer/run_config.h"
#include "trainer/trainer.h"

namespace wyvern {

// 4096 tokens of a periodic text with some noise: enough structure to learn in a few steps.
inline std::vector<int32_t> small_tokens(int64_t n, uint64_t seed) {
  std::vector<int32_t> t;
  uint64_t x = seed;
  for (int64_t i = 0; i < n; i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    t.push_back(int32_t((x >> 60) == 0 ? (x >> 40) % 31 : (i * 7) % 31));
  }
  return t;
}

struct SmallRun {
  TempFolder temp;
  SmallRun() {
    write_shard(temp / "train_000.bin", small_tokens(3000, 1), "test", 31, 1, 3000);
    write_shard(temp / "train_001.bin", small_tokens(1500, 2), "test", 31, 1, 1500);
    write_shard(temp / "val_000.bin", small_tokens(700, 3), "test", 31, 1, 700);
  }
  std::string yaml() const {
    return R"(name: small
seed: 5
compute: f32
model:
  vocab_size: 31
  padded_vocab: 32
  context: 16
  channels: 16
  embedding: {positions: learned, dropout: 0.1}
  norm: {kind: layernorm}
  residual: {dropout: 0.1}
  head: {tied: true}
  layers:
    - times: 2
      pattern:
        - attention: {kind: gqa, heads: 2, bias: true, dropout: 0.1}
          ffn: {kind: mlp, hidden: 32, bias: true}
optim:
  clip: 1.0
  schedule: {kind: cosine, warmup: 3, final: 0.1}
  groups:
    - {match: {role: [matrix, embedding]}, kind: adamw, lr: 3.0e-3, weight_decay: 0.1}
    - {match: {role: [vector]}, kind: adamw, lr: 3.0e-3}
train: {steps: 20, sequence: 16, batch: 8, micro_batch: 4, validate: {every: 7, batches: 0}, sample: {every: 9, tokens: 5}}
)" + fmt::format("data: {{train: \"{}\", val: \"{}\"}}\nrun: {{dir: \"{}\"}}\n", temp / "train_*.bin", temp / "val_*.bin", temp / "runs");
  }
  struct Config { ConfigTree tree; RunConfig run; };
  Config config(const std::vector<std::string>& overrides = {}) const {
    Config c{ConfigTree::parse(yaml(), "small.yaml", overrides), {}};
    c.run = RunConfig::from(c.tree.root());
    make_plan(c.run);                        // reads the layers' maps
    c.tree.check();
    return c;
  }
  std::string folder(const std::string& name = "small") const { return temp / ("runs/" + name); }

  // Trains; `resume` as on the command line.
  TrainOutcome train(const std::vector<std::string>& overrides = {}, const std::string& resume = "") const {
    const Config c = config(overrides);
    RunFolder folder(c.run.run_dir + "/" + c.run.name);
    const auto start = folder.starting_point(resume);
    Trainer trainer(c.run, c.tree.resolved(), folder, start);
    folder.write_records(c.tree.resolved(), {});
    return trainer.run();
  }
  // One value per line of an event: the metrics that must be reproducible.
  std::vector<nlohmann::json> events(const std::string& name, const std::string& event) const {
    std::vector<nlohmann::json> out;
    std::ifstream in(folder(name) + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      auto j = nlohmann::json::parse(line);
      if (j["event"] == event) out.push_back(j);
    }
    return out;
  }
  std::vector<double> column(const std::string& name, const std::string& key, const std::string& event = "train") const {
    std::vector<double> out;
    for (const auto& j : events(name, event)) out.push_back(j[key].get<double>());
    return out;
  }
};

}  // namespace wyvern
