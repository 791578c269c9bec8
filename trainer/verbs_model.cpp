// eval, generate, dump, import: the verbs that start from a trained model.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/prepare.h"
#include "kernels/base/log.h"
#include "trainer/checkpoint.h"
#include "trainer/dump.h"
#include "trainer/evaluate.h"
#include "trainer/generate.h"
#include "trainer/model_source.h"
#include "trainer/progress.h"
#include "trainer/run_config.h"
#include "trainer/verbs.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

DType chosen(const std::string& dtype, DType otherwise) {
  if (dtype.empty()) return otherwise;
  if (dtype != "f64" && dtype != "f32" && dtype != "bf16") fail(kUsage, "--dtype {}: choose f64, f32 or bf16", dtype);
  return parse_compute(dtype);
}

void use_tokenizer(ModelSource& m, const std::string& given) {
  if (!given.empty()) m.tokenizer = load_tokenizer(given);
  if (m.tokenizer && m.tokenizer->vocab_size() > m.config.vocab_size)
    fail(kUsage, "tokenizer {} has {} ids but {} knows {}; give the tokenizer the model was trained with", m.tokenizer->id(),
         m.tokenizer->vocab_size(), m.path, m.config.vocab_size);
}

bool is_shard(const std::string& path) { return path.find_first_of("*?[") != std::string::npos || fs::path(path).extension() == ".bin"; }

TokenStore evaluation_tokens(const ModelSource& m, const std::string& data) {
  if (is_shard(data)) {
    TokenStore store = TokenStore::open(data);
    if (m.tokenizer) store.require_tokenizer(m.tokenizer->id());
    return store;
  }
  if (!m.tokenizer) fail(kUsage, "{} brings no tokenizer, so text cannot be evaluated; give --tokenizer", m.path);
  const std::vector<int32_t> ids = m.tokenizer->encode(read_text_file(data));
  std::vector<uint16_t> narrow;
  if (m.tokenizer->end_of_text()) narrow.push_back(uint16_t(*m.tokenizer->end_of_text()));
  for (int32_t id : ids) narrow.push_back(uint16_t(id));
  return TokenStore::from_tokens(std::move(narrow), data);
}

std::vector<int32_t> parse_ids(const std::string& list, int64_t vocab) {
  std::vector<int32_t> ids;
  std::stringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    size_t used = 0;
    long long id = -1;
    try { id = std::stoll(word, &used); } catch (const std::exception&) {}
    if (used == 0 || word.find_first_not_of(" \t", used) != std::string::npos)
      fail(kUsage, "--tokens: '{}' is not a token id; write --tokens 1,2,3", word);
    if (id < 0 || id >= vocab) fail(kUsage, "--tokens: {} is outside the vocabulary of {} ids", id, vocab);
    ids.push_back(int32_t(id));
  }
  return ids;
}

std::vector<int32_t> read_prompt(const ModelSource& m, const GenerateArgs& a) {
  std::vector<int32_t> ids;
  if (!a.tokens.empty()) ids = parse_ids(a.tokens, m.config.vocab_size);
  else if (!a.prompt.empty()) {
    if (!m.tokenizer) fail(kUsage, "{} brings no tokenizer; give the prompt as --tokens 1,2,3, or a --tokenizer", m.path);
    ids = m.tokenizer->encode(a.prompt);
  } else if (m.tokenizer && m.tokenizer->end_of_text()) {
    ids = {*m.tokenizer->end_of_text()};
  } else {
    fail(kUsage, "the prompt is empty and this tokenizer has no end-of-text token to start from; give --prompt or --tokens");
  }
  if (int64_t(ids.size()) > m.config.context)
    fail(kUsage, "the prompt has {} tokens but the model's context is {}; shorten it", ids.size(), m.config.context);
  return ids;
}

}  // namespace

int verb_eval(const EvalArgs& a) {
  ModelSource m = find_model(a.model);
  use_tokenizer(m, a.tokenizer);
  const int64_t T = a.sequence ? a.sequence : m.config.context;
  if (T > m.config.context) fail(kUsage, "--sequence {} exceeds the model's context of {}", T, m.config.context);
  const TokenStore store = evaluation_tokens(m, a.data);
  auto windows = make_eval_windows(store, T, m.config.vocab_size);
  const int64_t all = windows->sequences_per_epoch(), count = a.windows ? std::min(a.windows, all) : all,
                B = std::min(a.micro_batch, count);
  Instance instance(m.config, chosen(a.dtype, m.compute), nullptr, {{B, T, Mode::eval}});
  m.load(instance);
  Progress progress("eval");
  std::vector<int32_t> bytes = m.tokenizer ? bytes_of_tokens(*m.tokenizer) : std::vector<int32_t>{};
  if (!bytes.empty()) bytes.resize(size_t(m.config.vocab_size), 0);
  const EvalResult r = evaluate(instance, *windows, count, B, T, bytes, [&](int64_t done) {
    progress.update(double(done), double(count), fmt::format("{} of {} windows", done, count));
  });
  progress.clear();
  if (a.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"loss", r.loss},
                                              {"perplexity", std::exp(r.loss)},
                                              {"bits_per_byte",
                                               r.bytes ? nlohmann::ordered_json(r.bits_per_byte) : nlohmann::ordered_json(nullptr)},
                                              {"tokens", r.tokens}}
                           .dump());
  else
    fmt::print("loss {:.6f} nats per token, perplexity {:.4f}{}, {} tokens\n", r.loss, std::exp(r.loss),
               r.bytes ? fmt::format(", {:.4f} bits per byte", r.bits_per_byte) : std::string(), with_commas(r.tokens));
  return kDone;
}

int verb_generate(const GenerateArgs& a) {
  ModelSource m = find_model(a.model);
  use_tokenizer(m, a.tokenizer);
  const std::vector<int32_t> prompt = read_prompt(m, a);
  Instance instance(m.config, chosen(a.dtype, m.compute), nullptr, generation_passes(int64_t(prompt.size())));
  m.load(instance);
  SampleOptions o{.tokens = a.count, .temperature = a.temperature, .top_k = a.top_k, .top_p = a.top_p, .seed = a.seed};
  if (m.tokenizer) o.stop = m.tokenizer->end_of_text();
  const bool stream = !a.json;
  if (stream) fmt::print("{}", m.tokenizer ? a.prompt : fmt::format("{}", fmt::join(prompt, ",")));
  const Generation g = generate(instance, prompt, o, [&](int32_t id) {
    if (!stream) return;
    if (m.tokenizer) fmt::print("{}", m.tokenizer->decode({id}));
    else fmt::print(",{}", id);
    std::fflush(stdout);
  });
  if (stream) {
    fmt::print("\n");
    std::fflush(stdout);
  }
  if (a.json) {
    nlohmann::ordered_json j{{"text", nullptr},
                             {"tokens", g.tokens},
                             {"prefill_tokens_per_s", g.prefill_tokens_per_s},
                             {"decode_tokens_per_s", g.decode_tokens_per_s}};
    if (m.tokenizer) j["text"] = m.tokenizer->decode(g.tokens);
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  if (g.context_full) log_warning("stopped after {} tokens: the model's context of {} is full", g.tokens.size(), m.config.context);
  log_info("prefill {} tokens at {:.0f} tokens/s, decode {} tokens at {:.1f} tokens/s", prompt.size(), g.prefill_tokens_per_s,
           g.tokens.size(), g.decode_tokens_per_s);
  return kDone;
}

int verb_dump(const DumpArgs& a) {
  if (a.names != "own" && a.names != "hf") fail(kUsage, "--names {}: choose own or hf", a.names);
  const ModelSource m = find_model(a.model);
  const double loss = dump_model(m, chosen(a.dtype, DType::f32), a.tokens, a.out, a.names == "hf");
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"loss", loss}, {"out", a.out}}.dump());
  else fmt::print("loss {:.9g}; wrote {}\n", loss, a.out);
  return kDone;
}

int verb_import(const ImportArgs& a) {
  if (fs::exists(a.out)) fail(kUsage, "{} exists already; import writes a new folder", a.out);
  const ModelSource m = find_model(a.folder);
  if (!m.hugging_face) fail(kUsage, "{} is a Wyvern model already; import reads Hugging Face folders", a.folder);
  Instance instance(m.config, DType::f32, nullptr, {});
  m.load(instance);
  fs::create_directories(a.out + "/checkpoints");
  const CheckpointMeta meta{.step = 0,
                            .tokens = 0,
                            .compute = "f32",
                            .config = m.config_text,
                            .tokenizer = m.tokenizer ? m.tokenizer->save() : "",
                            .train_state = "{}"};
  const std::string path = save_checkpoint(a.out + "/checkpoints", meta, instance.params, nullptr, instance.stream);
  std::ofstream(a.out + "/config.yaml") << m.config_text;
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"checkpoint", path}, {"parameters", instance.params.count()}}.dump());
  else fmt::print("imported {} parameters; the model is {}\n", with_commas(instance.params.count()), a.out);
  return kDone;
}

}  // namespace wyvern
