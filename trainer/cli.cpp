// The command line: verbs and options (CLI11), exit codes, the last catch. The only file that includes CLI11.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>

#include "configs/node.h"
#include "kernels/base/log.h"
#include "kernels/cpu/isa/tier.h"
#include "trainer/verbs.h"
#include "trainer/version.h"

namespace wyvern {
namespace {

const char* kAbout = R"(wyvern: trains language models from scratch, every backward pass written by hand.

Start here:   launch/quickstart.sh          or    wyvern train configs/smoke.yaml
A config is one YAML file; any value can be overridden as a.b=value after it.
MODEL is a run folder (its latest checkpoint), a checkpoint folder, or a Hugging Face folder.)";

using Action = std::function<int()>;

CLI::App* verb(CLI::App& app, const char* name, const char* what, Action& action, Action run) {
  CLI::App* v = app.add_subcommand(name, what);
  v->callback([&action, run] { action = run; });
  return v;
}
void config_options(CLI::App* v, ConfigArgs& a) {
  v->add_option("config", a.config, "YAML file, see configs/")->required();
  v->add_option("overrides", a.overrides, "a.b=value, any number");
  v->add_flag("--json", a.json, "one JSON object on stdout");
}

constexpr int64_t kMany = int64_t(1) << 62;      // CLI11 turns what does not fit 64 bits into the largest number: out of range here

CLI::Validator number_in(double low, double high) {      // CLI::Range lets NaN pass
  const auto check = [=](std::string& text) {
    double x = 0;
    return CLI::detail::lexical_cast(text, x) && x >= low && x <= high ? std::string()
                                                                       : fmt::format("'{}' is not a number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, fmt::format("[{} - {}]", low, high));
}

struct AllArgs {
  TrainArgs train;
  PlanArgs plan;
  GradcheckArgs gradcheck;
  ConfigShowArgs show;
  ConfigArgs check;
  EvalArgs eval;
  GenerateArgs generate;
  DumpArgs dump;
  ImportArgs import;
  PrepareArgs prepare;
  InspectArgs inspect;
  TokenizerArgs tokenizer;
  CkptArgs ckpt;
  BenchArgs bench;
  bool version_json = false;
};

void add_config_verbs(CLI::App& app, AllArgs& a, Action& act) {
  CLI::App* v = verb(app, "train", "train a model", act, [&] { return verb_train(a.train); });
  config_options(v, a.train);
  v->add_option("--resume", a.train.resume, "auto (go on if there is something, else start) | latest | STEP | PATH");

  v = verb(app, "plan", "parameters, memory, FLOPs and time of a config, before training it", act, [&] { return verb_plan(a.plan); });
  config_options(v, a.plan);
  v->add_flag("--no-measure", a.plan.no_measure, "skip the short measurement behind the time estimate");

  v = verb(app, "gradcheck", "check every gradient of a config against central differences", act,
           [&] { return verb_gradcheck(a.gradcheck); });
  config_options(v, a.gradcheck);
  v->add_option("--entries", a.gradcheck.entries, "entries sampled per tensor")->check(CLI::Range(2, 1000000));
  v->add_option("--seed", a.gradcheck.seed, "of values and samples")->check(CLI::Range(int64_t(0), kMany));

  CLI::App* config = app.add_subcommand("config", "show or check a config")->require_subcommand(1);
  v = verb(*config, "show", "print the resolved config", act, [&] { return verb_config_show(a.show); });
  config_options(v, a.show);
  v->add_flag("--origin", a.show.origin, "say where each value comes from");
  v->add_flag("--docs", a.show.docs, "print the reference of all keys (Markdown)");
  v = verb(*config, "check", "read a config and report everything that is wrong", act, [&] { return verb_config_check(a.check); });
  config_options(v, a.check);

  v = verb(app, "bench", "time GEMM, attention, AdamW and a training step against this machine's peak", act,
           [&] { return verb_bench(a.bench); });
  v->add_option("config", a.bench.config, "YAML file; its shapes are timed")->required();
  v->add_option("overrides", a.bench.overrides, "a.b=value, any number");
  v->add_option("--what", a.bench.what, "gemm | attention | adamw | step | all")
      ->check(CLI::IsMember({"gemm", "attention", "adamw", "step", "all"}));
  v->add_option("--seconds", a.bench.seconds, "per measurement")->check(number_in(0.01, 600));
  v->add_flag("--json", a.bench.json, "one JSON object on stdout");
}

void add_model_verbs(CLI::App& app, AllArgs& a, Action& act) {
  CLI::App* v = verb(app, "eval", "loss, perplexity and bits per byte on shards or a text file", act, [&] { return verb_eval(a.eval); });
  v->add_option("model", a.eval.model, "MODEL")->required();
  v->add_option("--data", a.eval.data, "token shards (file.bin or a glob) or a text file")->required();
  v->add_option("--tokenizer", a.eval.tokenizer, "instead of the model's own");
  v->add_option("--micro-batch", a.eval.micro_batch, "windows per pass; does not change the result")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  v->add_option("--sequence", a.eval.sequence, "tokens per window; default: the model's context")->check(CLI::Range(int64_t(1), kMany));
  v->add_option("--windows", a.eval.windows, "only the first so many windows")->check(CLI::Range(int64_t(1), kMany));
  v->add_option("--dtype", a.eval.dtype, "f64 | f32 | bf16; default: as trained");
  v->add_flag("--json", a.eval.json, "one JSON object on stdout");

  GenerateArgs& g = a.generate;
  v = verb(app, "generate", "continue a prompt", act, [&] { return verb_generate(a.generate); });
  v->add_option("model", g.model, "MODEL")->required();
  v->add_option("--prompt", g.prompt, "text to continue; empty = from the start of a text");
  v->add_option("--tokens", g.tokens, "the prompt as token ids: 1,2,3");
  v->add_option("--count,-n", g.count, "tokens to generate")->check(CLI::Range(int64_t(0), int64_t(1) << 30));
  v->add_option("--temperature", g.temperature, "0 = greedy")->check(number_in(0, 100));
  v->add_option("--top-k", g.top_k, "draw among the k best; 0 = all")->check(CLI::Range(int64_t(0), int64_t(1) << 30));
  v->add_option("--top-p", g.top_p, "draw from the smallest set of this probability")->check(number_in(0, 1));
  v->add_option("--seed", g.seed, "of the draws")->check(CLI::Range(int64_t(0), kMany));
  v->add_option("--tokenizer", g.tokenizer, "instead of the model's own");
  v->add_option("--dtype", g.dtype, "f64 | f32 | bf16; default: as trained");
  v->add_flag("--json", g.json, "one JSON object on stdout; nothing streams");

  v = verb(app, "dump", "logits, losses, hidden states and gradients of one batch, as HDF5", act, [&] { return verb_dump(a.dump); });
  v->add_option("model", a.dump.model, "MODEL")->required();
  v->add_option("--tokens", a.dump.tokens, "JSON file with `tokens` and `targets` (negative = ignored)")->required();
  v->add_option("--out", a.dump.out, "HDF5 file to write")->required();
  v->add_option("--dtype", a.dump.dtype, "f64 | f32 | bf16");
  v->add_option("--names", a.dump.names, "own | hf: names and shapes of the gradients");
  v->add_flag("--json", a.dump.json, "one JSON object on stdout");

  v = verb(app, "import", "turn a Hugging Face folder into a Wyvern model", act, [&] { return verb_import(a.import); });
  v->add_option("folder", a.import.folder, "with config.json and safetensors")->required();
  v->add_option("out", a.import.out, "folder to write")->required();
  v->add_flag("--json", a.import.json, "one JSON object on stdout");
}

void add_data_verbs(CLI::App& app, AllArgs& a, Action& act) {
  CLI::App* data = app.add_subcommand("data", "prepare or inspect training data")->require_subcommand(1);
  CLI::App* v = verb(*data, "prepare", "turn text into token shards", act, [&] { return verb_data_prepare(a.prepare); });
  v->add_option("inputs", a.prepare.inputs, "text files or folders")->required();
  v->add_option("--out", a.prepare.out, "folder to write")->required();
  v->add_option("--tokenizer", a.prepare.tokenizer, "bytes | char | gpt2 | FILE | bpe:SIZE (train one)");
  v->add_option("--validation", a.prepare.validation, "share kept for validation")->check(number_in(0, 0.9));
  v->add_flag("--json", a.prepare.json, "one JSON object on stdout");
  v = verb(*data, "inspect", "check token shards and say what they hold", act, [&] { return verb_data_inspect(a.inspect); });
  v->add_option("shards", a.inspect.pattern, "file or glob")->required();
  v->add_flag("--json", a.inspect.json, "one JSON object on stdout");

  TokenizerArgs& t = a.tokenizer;
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "train a tokenizer, or use one")->require_subcommand(1);
  v = verb(*tokenizer, "train", "train a byte-level BPE", act, [&] { return verb_tokenizer_train(t); });
  v->add_option("inputs", t.inputs, "text files")->required();
  v->add_option("--vocab", t.vocab, "ids, the 256 bytes and end of text included")->check(CLI::Range(int64_t(257), int64_t(65536)));
  v->add_option("--out", t.out, "file to write")->required();
  v->add_flag("--json", t.json, "one JSON object on stdout");
  for (const bool encode : {true, false}) {
    v = encode ? verb(*tokenizer, "encode", "text to ids", act, [&] { return verb_tokenizer_encode(t); })
               : verb(*tokenizer, "decode", "ids to text", act, [&] { return verb_tokenizer_decode(t); });
    v->add_option("tokenizer", t.tokenizer, "gpt2, bytes, a file or a folder")->required();
    v->add_option("text", t.text, encode ? "text; default: standard input" : "ids: 1,2,3; default: standard input");
    v->add_option("--file", t.file, "read from this file");
    v->add_flag("--json", t.json, "one JSON object on stdout");
  }

  CLI::App* ckpt = app.add_subcommand("ckpt", "list, show or verify checkpoints")->require_subcommand(1);
  const std::pair<const char*, std::pair<const char*, int (*)(const CkptArgs&)>> verbs[] = {
      {"ls", {"the complete checkpoints of a run", verb_ckpt_ls}},
      {"show", {"what a checkpoint holds", verb_ckpt_show}},
      {"verify", {"check every hash and checksum", verb_ckpt_verify}}};
  for (const auto& [name, rest] : verbs) {
    v = verb(*ckpt, name, rest.first, act, [&a, run = rest.second] { return run(a.ckpt); });
    v->add_option("path", a.ckpt.path, "checkpoint or run folder")->required();
    v->add_flag("--json", a.ckpt.json, "one JSON object on stdout");
  }
  v = verb(app, "version", "version, compiler, CPU tier", act, [&] { return verb_version(a.version_json); });
  v->add_flag("--json", a.version_json, "one JSON object on stdout");
}

// CLI11's own message for an unknown verb is about unexpected arguments; ours names the nearest verb.
void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* v : app.get_subcommands(nullptr)) names.push_back(v->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  const std::string near = nearest(argv[1], names);
  fail(kUsage, "there is no verb '{}'{}; `wyvern --help` lists them", argv[1],
       near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near));
}

int run(int argc, char** argv) {
  CLI::App app(kAbout, "wyvern");
  AllArgs args;
  args.train.argv.assign(argv, argv + argc);
  Action action;
  bool quiet = false;
  app.add_flag("--quiet,-q", quiet, "only warnings and errors on stderr");
  app.set_version_flag("--version", [] { return version_report(false); });
  app.require_subcommand(1);
  app.fallthrough();
  add_config_verbs(app, args, action);
  add_model_verbs(app, args, action);
  add_data_verbs(app, args, action);
  check_verb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);                     // --help
    if (argc < 2) {
      fmt::print("{}", app.help());
      return kUsage;
    }
    fail(kUsage, "{} (see `wyvern {}--help`)", e.what(), argv[1][0] == '-' ? std::string() : fmt::format("{} ", argv[1]));
  }
  if (quiet) set_log_level(LogLevel::warning);
  isa::tier();                                                          // a wrong WYVERN_CPU_TIER is said first
  return action();
}

}  // namespace

int run_command_line(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    log_line(LogLevel::error, e.what());
    return e.code;
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::error, "out of memory; `wyvern plan` says what a config needs");
    return kEnvironment;
  } catch (const std::exception& e) {
    log_line(LogLevel::error, e.what());
    return kRuntime;
  }
}

}  // namespace wyvern
