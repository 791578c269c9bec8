// The floor rule, drawn by a test: an include goes down the picture, never up, and some libraries stay in their rooms.
// A header whose opening comment says "Internal" may bring in a heavy library; in return only .cpp files and other internal
// headers may include it.
//
//                 trainer
//           model         optim         (neither knows the other)
//          parallel             data    (neither knows the other; data knows nothing of model and optim either)
//                 configs
//                 kernels
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// What each folder may include, itself apart.
const std::map<std::string, std::set<std::string>> kBelow = {
    {"kernels", {}},
    {"configs", {"kernels"}},
    {"parallel", {"kernels", "configs"}},
    {"data", {"kernels", "configs"}},
    {"model", {"kernels", "configs", "parallel"}},
    {"optim", {"kernels", "configs", "parallel"}},
    {"trainer", {"kernels", "configs", "parallel", "data", "model", "optim"}},
    {"tests", {"kernels", "configs", "parallel", "data", "model", "optim", "trainer"}}};

bool starts_with(const std::string& s, const std::string& prefix) { return s.rfind(prefix, 0) == 0; }
bool ends_with(const std::string& s, const std::string& suffix) {
  return s.size() >= suffix.size() && s.compare(s.size() - suffix.size(), suffix.size(), suffix) == 0;
}

struct File { std::string path, text; };        // path from the root of the tree

bool is_internal(const File& f) {
  const std::string opening = f.text.substr(0, f.text.find("#pragma once"));
  return ends_with(f.path, ".h") && opening.find("Internal") != std::string::npos;
}

// The reason why `file` may not include `name`, or nothing.
std::string objection(const File& file, const std::string& name, bool quoted, const std::set<std::string>& internal) {
  const std::string& path = file.path;
  const std::string folder = path.substr(0, path.find('/'));
  if (quoted) {
    const std::string target = name.substr(0, name.find('/'));
    if (name.find('/') == std::string::npos || !kBelow.count(target)) return "not from the root of the tree";
    if (target != folder && !kBelow.at(folder).count(target)) return target + " is not below " + folder;
    const bool describes_the_machine =
        name == "kernels/cpu/isa/tier.h" || name == "kernels/cpu/isa/peak.h" || name == "kernels/cpu/isa/workspace.h";
    if (starts_with(name, "kernels/cpu/") && !describes_the_machine && !starts_with(path, "kernels/cpu/") && folder != "tests")
      return "kernels/cpu is private to itself";
    if (internal.count(name) && ends_with(path, ".h") && !is_internal(file)) return "it is internal, for .cpp files";
    return "";
  }
  static const std::regex intrinsics("([a-z0-9]*intrin|cpuid)\\.h");
  static const std::regex heavy("(CLI/|spdlog/|nlohmann/|yaml-cpp/).*");
  if (std::regex_match(name, intrinsics) && !starts_with(path, "kernels/cpu/isa/")) return "instruction sets stay in kernels/cpu/isa";
  const bool weighs = std::regex_match(name, heavy) && name != "nlohmann/json_fwd.hpp";
  if (weighs && ends_with(path, ".h") && folder != "tests" && !is_internal(file)) return "heavy headers stay out of headers";
  if (starts_with(name, "yaml-cpp/") && folder != "configs") return "YAML is read in configs alone";
  if (starts_with(name, "spdlog/") && path != "kernels/base/log.cpp") return "logging goes through kernels/base/log.h";
  return "";
}

std::vector<std::string> objections(const File& file, const std::set<std::string>& internal) {
  static const std::regex include(R"(^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"])", std::regex::ECMAScript | std::regex::multiline);
  std::vector<std::string> found;
  for (std::sregex_iterator it(file.text.begin(), file.text.end(), include), end; it != end; ++it) {
    const std::string why = objection(file, (*it)[2], (*it)[1] == "\"", internal);
    if (!why.empty()) found.push_back(file.path + " includes " + (*it)[2].str() + ": " + why);
  }
  return found;
}

std::vector<File> source_files(const fs::path& root, const std::string& folder) {
  std::vector<File> files;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".inl") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files.push_back({fs::relative(entry.path(), root).generic_string(), std::string(std::istreambuf_iterator<char>(in), {})});
  }
  return files;
}

TEST(Layering, EveryIncludeGoesDown) {
  std::vector<File> files;
  std::set<std::string> internal;
  for (const auto& [folder, below] : kBelow) {
    ASSERT_TRUE(fs::exists(fs::path(WYVERN_SOURCE) / folder)) << folder;
    for (const File& f : source_files(WYVERN_SOURCE, folder)) {
      files.push_back(f);
      if (is_internal(f)) internal.insert(f.path);
    }
  }
  EXPECT_GT(files.size(), 50u) << "is WYVERN_SOURCE the root of the tree?";
  for (const File& f : files)
    for (const std::string& o : objections(f, internal)) ADD_FAILURE() << o;
}

// The rule sees what it is there to see.
TEST(Layering, SpotsWhatIsForbidden) {
  const struct { const char *path, *include, *reason; } bad[] = {
      {"kernels/norm.cpp", "\"parallel/mesh.h\"", "not below"},
      {"configs/node.h", "\"data/loader.h\"", "not below"},
      {"data/loader.cpp", "\"parallel/mesh.h\"", "not below"},
      {"parallel/params.cpp", "\"data/loader.h\"", "not below"},
      {"model/model.cpp", "\"optim/adamw.h\"", "not below"},
      {"optim/adamw.cpp", "\"model/layer.h\"", "not below"},
      {"optim/adamw.cpp", "\"trainer/metrics.h\"", "not below"},
      {"trainer/main.cpp", "\"tests/support/op_check.h\"", "not below"},
      {"model/model.cpp", "\"../kernels/norm.h\"", "root"},
      {"model/model.cpp", "\"layer.h\"", "root"},
      {"model/model.cpp", "\"kernels/cpu/isa/gemm.h\"", "private"},
      {"trainer/metrics.h", "\"trainer/json.h\"", "internal"},
      {"kernels/cpu/norm.cpp", "<immintrin.h>", "instruction sets"},
      {"kernels/base/dtype.h", "<cpuid.h>", "instruction sets"},
      {"trainer/run_config.h", "<CLI/CLI.hpp>", "heavy"},
      {"trainer/metrics.h", "<nlohmann/json.hpp>", "heavy"},
      {"configs/node.h", "<yaml-cpp/yaml.h>", "heavy"},
      {"kernels/base/log.h", "<spdlog/spdlog.h>", "heavy"},
      {"data/tokenizer.cpp", "<yaml-cpp/yaml.h>", "configs alone"},
      {"trainer/main.cpp", "<spdlog/spdlog.h>", "log.h"}};
  for (const auto& b : bad) {
    const std::string text = std::string("#pragma once\n  #  include ") + b.include + "\nint x;\n";
    const std::vector<std::string> found = objections({b.path, text}, {"trainer/json.h"});
    ASSERT_EQ(found.size(), 1u) << b.path << " " << b.include;
    EXPECT_NE(found[0].find(b.reason), std::string::npos) << found[0];
  }
}

TEST(Layering, AllowsWhatIsAllowed) {
  const struct { const char *path, *include; } good[] = {
      {"kernels/cpu/isa/gemm_avx2.cpp", "<immintrin.h>"},
      {"kernels/cpu/norm.cpp", "\"kernels/cpu/isa/rows.h\""},
      {"kernels/base/log.cpp", "<spdlog/spdlog.h>"},
      {"configs/parse.cpp", "<yaml-cpp/yaml.h>"},
      {"model/model.h", "<vector>"},
      {"trainer/main.cpp", "<CLI/CLI.hpp>"},
      {"trainer/plan.cpp", "\"optim/adamw.h\""},
      {"trainer/version.cpp", "\"kernels/cpu/isa/tier.h\""},
      {"trainer/metrics.h", "<nlohmann/json_fwd.hpp>"},
      {"tests/trainer/small_run.h", "<nlohmann/json.hpp>"},
      {"trainer/metrics.cpp", "\"trainer/json.h\""}};
  for (const auto& g : good)
    EXPECT_TRUE(objections({g.path, std::string("#include ") + g.include}, {"trainer/json.h"}).empty()) << g.path << " " << g.include;
  EXPECT_TRUE(objections({"trainer/json.h", "// Internal: brings in nlohmann.\n#pragma once\n#include <nlohmann/json.hpp>"}, {}).empty());
}

}  // namespace
