// data, tokenizer, ckpt, version: the verbs about files.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "data/prepare.h"
#include "data/tokenizer.h"
#include "trainer/checkpoint.h"
#include "trainer/progress.h"
#include "trainer/verbs.h"
#include "trainer/version.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

std::string given_text(const TokenizerArgs& a) {
  if (!a.text.empty()) return a.text;
  if (!a.file.empty() && a.file != "-") return read_text_file(a.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// A run folder means its latest checkpoint.
std::string checkpoint_of(const std::string& path) {
  if (fs::exists(path + "/manifest.json")) return path;
  const std::string folder = fs::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path;
  const auto steps = list_checkpoints(folder);
  if (steps.empty()) fail(kUsage, "{} is neither a checkpoint nor a run folder with complete checkpoints", path);
  return checkpoint_path(folder, steps.back());
}

// For `verify` the newest counts, complete or not: a damaged one must not be passed over for a good one behind it.
std::string newest_of(const std::string& path) {
  const std::string folder = fs::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path;
  if (fs::exists(path + "/manifest.json") || !fs::is_directory(folder)) return checkpoint_of(path);
  std::string newest;
  for (const auto& f : fs::directory_iterator(folder)) {
    const std::string name = f.path().filename().string();
    if (name.rfind("step-", 0) == 0 && name.find_first_not_of("0123456789", 5) == std::string::npos) newest = std::max(newest, name);
  }
  return newest.empty() ? checkpoint_of(path) : folder + "/" + newest;
}

}  // namespace

int verb_data_prepare(const PrepareArgs& a) {
  const PrepareResult r = prepare({.inputs = a.inputs, .out_dir = a.out, .tokenizer = a.tokenizer, .validation = a.validation});
  if (a.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"train_tokens", r.train_tokens},
                                              {"val_tokens", r.val_tokens},
                                              {"vocab_size", r.vocab_size},
                                              {"documents", r.documents},
                                              {"bytes", r.bytes},
                                              {"tokenizer", r.tokenizer_path},
                                              {"out", a.out}}
                           .dump());
  else
    fmt::print("{} bytes in {} documents -> {} training and {} validation tokens, vocabulary {}\nwrote {}\ntokenizer {}\n",
               with_commas(r.bytes), with_commas(r.documents), with_commas(r.train_tokens), with_commas(r.val_tokens), r.vocab_size, a.out,
               r.tokenizer_path);
  return 0;
}

int verb_data_inspect(const InspectArgs& a) {
  fmt::print("{}", inspect(a.pattern, a.json));
  return 0;
}

int verb_tokenizer_train(const TokenizerArgs& a) {
  std::string corpus;
  for (const std::string& file : a.inputs) corpus += read_text_file(file);
  const auto tokenizer = train_bpe(corpus, a.vocab);
  std::ofstream out(a.out);
  if (!(out << tokenizer->save())) fail(3, "cannot write {}", a.out);
  if (a.json)
    fmt::print("{}\n",
               nlohmann::ordered_json{{"tokenizer", tokenizer->id()}, {"vocab_size", tokenizer->vocab_size()}, {"out", a.out}}.dump());
  else fmt::print("{}: {} ids; wrote {}\n", tokenizer->id(), tokenizer->vocab_size(), a.out);
  return 0;
}

int verb_tokenizer_encode(const TokenizerArgs& a) {
  const auto ids = load_tokenizer(a.tokenizer)->encode(given_text(a));
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"tokens", ids}}.dump());
  else fmt::print("{}\n", fmt::join(ids, ","));
  return 0;
}

int verb_tokenizer_decode(const TokenizerArgs& a) {
  const auto tokenizer = load_tokenizer(a.tokenizer);
  std::vector<int32_t> ids;
  std::string text = given_text(a), word;
  for (char& c : text) if (c == ',') c = ' ';
  std::istringstream in(text);
  while (in >> word) {
    if (word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9 || std::stoll(word) >= tokenizer->vocab_size())
      fail(2, "'{}' is no token id of this tokenizer (0 to {})", word, tokenizer->vocab_size() - 1);
    ids.push_back(std::stoi(word));
  }
  const std::string decoded = tokenizer->decode(ids);
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"text", decoded}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else std::cout << decoded << "\n";
  return 0;
}

int verb_ckpt_ls(const CkptArgs& a) {
  const std::string folder = fs::is_directory(a.path + "/checkpoints") ? a.path + "/checkpoints" : a.path;
  if (!fs::is_directory(folder)) fail(2, "{}: no such folder", a.path);
  nlohmann::ordered_json j = nlohmann::ordered_json::array();
  for (int64_t step : list_checkpoints(folder)) {
    const std::string path = checkpoint_path(folder, step);
    int64_t bytes = 0;
    for (const auto& f : fs::directory_iterator(path)) bytes += int64_t(f.file_size());
    if (a.json) j.push_back({{"step", step}, {"path", path}, {"bytes", bytes}});
    else fmt::print("{:>10}  {:>12}  {}\n", step, human_bytes(double(bytes)), path);
  }
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"checkpoints", j}}.dump());
  return 0;
}

int verb_ckpt_show(const CkptArgs& a) {
  fmt::print("{}\n", show_checkpoint(checkpoint_of(a.path), a.json));
  return 0;
}
int verb_ckpt_verify(const CkptArgs& a) {
  fmt::print("{}\n", verify_checkpoint(newest_of(a.path), a.json));
  return 0;
}
int verb_version(bool json) {
  fmt::print("{}\n", version_report(json));
  return 0;
}

}  // namespace wyvern
