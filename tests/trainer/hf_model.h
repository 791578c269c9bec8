// The golden Hugging Face folders of the dense softmax families, and a model built from imported YAML the way a run builds it.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "model/model.h"
#include "tests/data/temp_folder.h"

namespace wyvern {

inline const char* const kHfCases[] = {
    "hf-gpt2",    "hf-gpt2-hub", "hf-llama", "hf-llama-bf16-sharded", "hf-llama-rope-llama3", "hf-llama-rope-linear", "hf-llama-rope-yarn",
    "hf-mistral", "hf-qwen2",    "hf-qwen3"};
inline std::string hf_golden(const std::string& name) { return std::string(WYVERN_SHARED) + "/golden/" + name; }

// One rank of a tensor-parallel axis whose collectives nobody calls.
struct SilentComm final : Comm {
  SilentComm(int r, int n) : rank_(r), size_(n) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Stream&, Tensor, Reduce) override { throw Error(kRuntime, "no pass runs here"); }
  void all_gather(Stream&, Tensor, Tensor) override { throw Error(kRuntime, "no pass runs here"); }
  int rank_, size_;
};

// Parameters only: bytes = 0 builds a dry model of any size.
struct HfModel {
  explicit HfModel(const std::string& yaml, int64_t bytes = 0, DType dtype = DType::f32, int rank = 0, int size = 1)
      : mesh{self_comm(), std::make_unique<SilentComm>(rank, size)}, stream(bytes == 0),
        arena(bytes ? Arena(bytes, true) : Arena::counting()), params(arena, mesh, dtype), tree(ConfigTree::parse(yaml, "imported.yaml")) {
    name = tree.root().text("name", {}, "");
    config = ModelConfig::from(tree.root().map("model", ""));
    Model model(config, params, stream);
    tree.check();
  }
  Mesh mesh;
  Stream stream;
  Arena arena;                         // poisoned: what is not written reads as NaN
  ParamStore params;
  ConfigTree tree;
  std::string name;
  ModelConfig config;
};

}  // namespace wyvern
