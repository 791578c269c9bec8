// Wherever a MODEL is asked for, a run folder (its latest checkpoint), a checkpoint, or a Hugging Face folder will do.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "trainer/instance.h"

namespace wyvern {

struct ModelSource {
  std::string path;                        // what was found: a checkpoint or a Hugging Face folder
  bool hugging_face = false;
  std::string name;
  DType compute = DType::f32;              // as trained; f32 for a Hugging Face folder
  std::string config_text;                 // YAML: at least `name` and `model`
  ConfigTree tree;                         // keeps the layers' maps alive
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;    // null when the model brings none
  int64_t step = 0, tokens = 0;

  void load(Instance&) const;              // parameter values, converted to the instance's type
};

ModelSource find_model(const std::string& path);          // Error(kUsage) when nothing usable is there

}  // namespace wyvern
