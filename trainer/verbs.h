// The verbs of the command line: plain options in, exit code out. Results go to stdout (one JSON object with --json), everything
// else to stderr. cli.cpp is the only file that knows CLI11.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace wyvern {

struct ConfigArgs { std::string config; std::vector<std::string> overrides; bool json = false; };

struct TrainArgs : ConfigArgs { std::string resume; std::vector<std::string> argv; };
struct PlanArgs : ConfigArgs { bool no_measure = false; };
struct GradcheckArgs : ConfigArgs { int entries = 24; uint64_t seed = 1; };
struct ConfigShowArgs : ConfigArgs { bool docs = false, origin = false; };
struct EvalArgs { std::string model, data, tokenizer, dtype; int64_t micro_batch = 4, sequence = 0, windows = 0; bool json = false; };
struct GenerateArgs {
  std::string model, prompt, tokens, tokenizer, dtype;
  int64_t count = 128, top_k = 0;
  double temperature = 0.8, top_p = 1;
  uint64_t seed = 1;
  bool json = false;
};
struct DumpArgs { std::string model, tokens, out, dtype = "f32", names = "own"; bool json = false; };
struct ImportArgs { std::string folder, out; bool json = false; };
struct PrepareArgs {
  std::vector<std::string> inputs;
  std::string out = "data", tokenizer = "bpe:4096";
  double validation = 0.1;
  bool json = false;
};
struct InspectArgs { std::string pattern; bool json = false; };
struct TokenizerArgs { std::string tokenizer, text, file, out; std::vector<std::string> inputs; int64_t vocab = 4096; bool json = false; };
struct CkptArgs { std::string path; bool json = false; };
struct BenchArgs : ConfigArgs { std::string what = "all"; double seconds = 1; };

int verb_train(const TrainArgs&);
int verb_plan(const PlanArgs&);
int verb_gradcheck(const GradcheckArgs&);
int verb_config_show(const ConfigShowArgs&);
int verb_config_check(const ConfigArgs&);
int verb_eval(const EvalArgs&);
int verb_generate(const GenerateArgs&);
int verb_dump(const DumpArgs&);
int verb_import(const ImportArgs&);
int verb_data_prepare(const PrepareArgs&);
int verb_data_inspect(const InspectArgs&);
int verb_tokenizer_train(const TokenizerArgs&);
int verb_tokenizer_encode(const TokenizerArgs&);
int verb_tokenizer_decode(const TokenizerArgs&);
int verb_ckpt_ls(const CkptArgs&);
int verb_ckpt_show(const CkptArgs&);
int verb_ckpt_verify(const CkptArgs&);
int verb_bench(const BenchArgs&);
int verb_version(bool json);

int run_command_line(int argc, char** argv);         // cli.cpp

}  // namespace wyvern
