#include "trainer/run_config.h"

namespace wyvern {
namespace {

constexpr int64_t kMany = int64_t(1) << 40;

std::string text_or_empty(const Node& n, const char* key, const char* doc) {
  const std::string s = n.text(key, std::string("none"), doc);
  return s == "none" ? "" : s;
}

DataConfig read_data(const Node& root) {
  const Node n = root.map("data", "where tokens come from");
  DataConfig c;
  if (n.has("synthetic")) {
    c.synthetic = n.map("synthetic", "a task made up on the fly instead of shards")
                      .choice("kind", {"uniform"}, {}, "uniform: ids uniform over the vocabulary, for timing");
  } else {
    c.train = n.text("train", {}, "token shards to train on: a file or a glob");
    c.val = text_or_empty(n, "val", "token shards to validate on; none = no validation");
    const std::string order = n.choice("order", {"shuffled", "sequential", "random_offsets"}, "shuffled",
                                       "windows permuted per epoch, in file order, or drawn with replacement (nanoGPT)");
    c.order = order == "shuffled" ? DataOrder::shuffled : order == "sequential" ? DataOrder::sequential : DataOrder::random_offsets;
    n.choice("documents", {"cross"}, "cross", "windows may cross document boundaries");
  }
  c.tokenizer = text_or_empty(n, "tokenizer", "gpt2, bytes, a tokenizer file or a folder; none = token ids only");
  return c;
}

void read_intervals(const Node& n, TrainConfig& c) {
  const Node v = n.map("validate", "validation during training");
  c.validate_every = v.integer("every", 0, {0, kMany}, "steps between validations, and one at the end; 0 = never");
  c.validate_batches = v.integer("batches", 20, {0, kMany}, "micro-batches per validation; 0 = the whole split");
  const Node s = n.map("sample", "text generated during training");
  c.sample_every = s.integer("every", 0, {0, kMany}, "steps between samples; 0 = never");
  c.sample_tokens = s.integer("tokens", 64, {1, kMany}, "tokens per sample");
  c.sample_prompt = s.text("prompt", std::string(), "text the sample continues; empty = from the start of a text");
  const Node k = n.map("checkpoint", "saved states");
  c.checkpoint_every = k.integer("every", 0, {0, kMany}, "steps between checkpoints, and one at the end; 0 = only at the end");
  c.checkpoint_keep = k.integer("keep", 3, {1, kMany}, "newest checkpoints that are kept");
  c.checkpoint_milestone = k.integer_or_none("milestone", {}, {1, kMany}, "checkpoints at multiples of this are kept for ever").value_or(0);
  c.time_limit =
      k.number_or_none("time_limit", {}, {0, 1e9, true}, "seconds after which the run saves and stops with exit code 75").value_or(0);
  const Node g = n.map("guard", "what to do when training goes wrong");
  g.choice("non_finite", {"stop"}, "stop", "a non-finite loss or gradient stops the run before anything is changed");
  c.skip_zscore = g.number_or_none("skip_zscore", {}, {0, 1e6, true},
                                   "skip the update when the loss or gradient norm is this many deviations above its recent mean")
                      .value_or(0);
}

int read_threads(const Node& n) {
  const std::string s = n.text("threads", std::string("auto"), "worker threads: a number, or auto = the cores this process may use");
  if (s == "auto") return 0;
  const bool digits = !s.empty() && s.size() < 5 && s.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoi(s) < 1) n.error("threads", fmt::format("'{}' is neither auto nor a number from 1 to 9999", s));
  return digits ? std::stoi(s) : 0;
}

TrainConfig read_train(const Node& root, const ModelConfig& model) {
  const Node n = root.map("train", "the loop");
  TrainConfig c;
  c.steps = n.integer("steps", {}, {1, kMany}, "optimizer steps");
  c.sequence = n.integer("sequence", model.context, {1, 1 << 24}, "tokens per sequence");
  c.batch = n.integer("batch", {}, {1, 1 << 24}, "sequences per step over all ranks");
  c.micro_batch = n.integer("micro_batch", c.batch, {1, 1 << 24}, "sequences per pass; accumulation = batch / (micro_batch * dp)");
  if (c.batch % c.micro_batch)
    n.error("micro_batch",
            fmt::format("train.batch = {} is not divisible by train.micro_batch = {} x parallel.dp = 1; the nearest divisor below is {}",
                        c.batch, c.micro_batch, [&] {
                          int64_t d = c.micro_batch;
                          while (c.batch % d) d--;
                          return d;
                        }()));
  if (c.sequence > model.context)
    n.error("sequence", fmt::format("train.sequence = {} exceeds model.context = {}", c.sequence, model.context));
  if (c.micro_batch > INT32_MAX / c.sequence)      // rows are counted in 32 bits where documents begin
    n.error("micro_batch",
            fmt::format("train.micro_batch = {} x {} tokens exceeds the 2147483647 tokens of one pass", c.micro_batch, c.sequence));
  else if (c.steps > INT64_MAX / (c.batch * c.sequence))
    n.error("steps", fmt::format("train.steps = {} x {} x {} tokens cannot be counted in 64 bits", c.steps, c.batch, c.sequence));
  c.log_every = n.integer("log_every", 1, {1, kMany}, "steps between log lines");
  read_intervals(n, c);
  c.threads = read_threads(n);
  n.choice("device", {"cpu"}, "cpu", "where the model lives");
  return c;
}

}  // namespace

DType parse_compute(const std::string& s) { return s == "f64" ? DType::f64 : s == "bf16" ? DType::bf16 : DType::f32; }

RunConfig RunConfig::from(const Node& root) {
  RunConfig c;
  c.name = root.text("name", {}, "of the run; its folder is run.dir/name");
  if (c.name.find('/') != std::string::npos || c.name == "." || c.name == "..") root.error("name", "is a folder name: no '/'");
  c.seed = uint64_t(root.integer("seed", 1337, {0, INT64_MAX}, "of initialisation, data order, dropout and samples"));
  c.compute = parse_compute(root.choice("compute", {"f64", "f32", "bf16"}, "f32",
                                        "type of parameters and activations; sums, masters and gradients of bf16 are f32"));
  c.model = ModelConfig::from(root.map("model", "the network"));
  c.data = read_data(root);
  c.train = read_train(root, c.model);
  c.optim = OptimConfig::from(root.map("optim", "how parameters move"), c.train.steps);
  const Node p = root.map("parallel", "how ranks are laid out; this build runs one");
  for (const char* axis : {"dp", "tp", "ep"}) p.integer(axis, 1, {1, 1}, "ranks on this axis");
  c.run_dir = root.map("run", "where results go").text("dir", std::string("runs"), "parent of the run folders");
  return c;
}

}  // namespace wyvern
