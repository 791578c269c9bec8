// A text, its shards, a config and a run trained on them, all made by the program itself: once per test binary.
#pragma once
#include "tests/trainer/command.h"

namespace wyvern {

// 400 lines of ten words each: 20 kB that a small model learns something about in a second.
inline std::string small_text() {
  const char* words[] = {"the",   "quick", "brown",   "fox", "jumps", "over",   "a",  "lazy",  "dog",
                         "while", "seven", "wizards", "box", "my",    "sphinx", "of", "black", "quartz"};
  std::string text;
  uint64_t x = 1;
  for (int i = 0; i < 4000; i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    text += words[(x >> 33) % 18];
    text += i % 10 == 9 ? ".\n" : " ";
  }
  return text;
}

inline const std::string kTextConfig = R"(name: small
seed: 5
compute: f32
model:
  vocab_size: 300
  context: 32
  channels: 32
  embedding: {positions: learned}
  norm: {kind: layernorm}
  head: {tied: true}
  layers:
    - times: 2
      pattern:
        - attention: {kind: gqa, heads: 2, bias: true}
          ffn: {kind: mlp, hidden: 64, bias: true}
optim:
  groups:
    - {match: {role: [matrix, embedding]}, kind: adamw, lr: 3.0e-3, weight_decay: 0.1}
    - {match: {role: [vector]}, kind: adamw, lr: 3.0e-3}
data: {train: "d/train_*.bin", val: "d/val_*.bin", tokenizer: d/tokenizer.json}
train: {steps: 40, sequence: 32, batch: 8, validate: {every: 20, batches: 0}, sample: {every: 20, tokens: 12}, checkpoint: {every: 20}}
)";

// In its folder: text.txt, d/ (shards and tokenizer), run.yaml, runs/small (checkpoints of steps 20 and 40).
struct TrainedRun {
  Workplace work;
  nlohmann::ordered_json prepared, trained;
  TrainedRun() {
    work.write("text.txt", small_text());
    work.write("run.yaml", kTextConfig);
    prepared = work.json({"data", "prepare", "text.txt", "--out", "d", "--tokenizer", "bpe:300"});
    trained = work.json({"train", "run.yaml", "-q"});
  }
};

class CliModel : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    if (!IsSkipped()) at = &run().work;
  }
  static const TrainedRun& run() {
    static const TrainedRun made;
    return made;
  }
  // What tests of this run share is only read; damaged copies and new files go to folders of their own names.
  const Workplace* at = nullptr;
};

}  // namespace wyvern
