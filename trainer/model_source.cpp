#include "trainer/model_source.h"

#include <filesystem>

#include "trainer/checkpoint.h"
#include "trainer/interop/hf_config.h"
#include "trainer/interop/hf_names.h"
#include "trainer/run_config.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

std::string latest_in(const std::string& folder) {
  const auto steps = list_checkpoints(folder);
  if (steps.empty()) fail(kUsage, "{} holds no complete checkpoint yet", folder);
  return checkpoint_path(folder, steps.back());
}

ConfigTree read_model_part(const std::string& text, const std::string& name, ModelSource& m) {
  ConfigTree tree = ConfigTree::parse(text, name);
  m.name = tree.root().text("name", std::string("model"), "");
  m.compute = parse_compute(tree.root().choice("compute", {"f64", "f32", "bf16"}, "f32", ""));
  m.config = ModelConfig::from(tree.root().map("model", ""));
  return tree;
}

ModelSource from_checkpoint(const std::string& path) {
  const CheckpointMeta meta = read_checkpoint_meta(path);
  ModelSource m;
  m.path = path;
  m.config_text = meta.config;
  m.tree = read_model_part(meta.config, path + "/config", m);
  m.step = meta.step;
  m.tokens = meta.tokens;
  if (!meta.tokenizer.empty()) m.tokenizer = parse_tokenizer(meta.tokenizer, path + "/tokenizer");
  return m;
}

ModelSource from_hugging_face(const std::string& path) {
  ModelSource m;
  m.path = path;
  m.hugging_face = true;
  m.config_text = hf_to_yaml(path);
  m.tree = read_model_part(m.config_text, path + "/config.json", m);
  const bool tokenizer = fs::exists(path + "/vocab.json") || fs::exists(path + "/encoder.json");
  if (tokenizer) m.tokenizer = load_tokenizer(path);
  return m;
}

}  // namespace

void ModelSource::load(Instance& m) const {
  if (hugging_face) load_hf_values(path, m.params, m.stream);
  else load_checkpoint(path, m.params, nullptr, m.stream, true);
  m.params.touch();
}

ModelSource find_model(const std::string& path) {
  if (!fs::is_directory(path))
    fail(kUsage, "{}: no such folder; a model is a run folder, a checkpoint folder (step-...) or a Hugging Face folder with config.json",
         path);
  if (fs::exists(path + "/manifest.json")) return from_checkpoint(path);
  if (fs::is_directory(path + "/checkpoints")) return from_checkpoint(latest_in(path + "/checkpoints"));
  if (fs::exists(path + "/config.json")) return from_hugging_face(path);
  fail(kUsage,
       "{} is no model: it has neither checkpoints/ (a run folder), nor manifest.json (a checkpoint), nor config.json (a Hugging Face "
       "folder)",
       path);
}

}  // namespace wyvern
