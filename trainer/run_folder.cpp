#include "trainer/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/cpu/isa/tier.h"
#include "trainer/version.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

// "model:" -> its lines; keys before the first indented line count as their own section.
std::map<std::string, std::vector<std::string>> sections(const std::string& yaml) {
  std::map<std::string, std::vector<std::string>> out;
  std::istringstream in(yaml);
  std::string current;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    if (line[0] != ' ' && line[0] != '-') current = line.substr(0, line.find(':'));
    out[current].push_back(line);
  }
  return out;
}

std::string first_difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); i++) {
    const std::string x = i < a.size() ? a[i] : "(nothing)", y = i < b.size() ? b[i] : "(nothing)";
    if (x != y) {
      const auto trim = [](const std::string& s) {
        const size_t at = s.find_first_not_of(' ');
        return at == std::string::npos ? s : s.substr(at);
      };
      return fmt::format("was `{}`, is `{}`", trim(x), trim(y));
    }
  }
  return "";
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  fs::create_directories(checkpoints(), error);
  if (error) fail(kEnvironment, "cannot create the run folder {}: {}; choose another run.dir", path_, error.message());
  const std::string lock = path_ + "/lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) fail(kEnvironment, "cannot write into the run folder {}: {}; choose another run.dir", path_, std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    fail(kUsage, "another process is training in {} (it holds {}); choose another name", path_, lock);
  }
}
RunFolder::~RunFolder() { if (lock_ >= 0) ::close(lock_); }

bool RunFolder::used() const { return fs::exists(metrics()) || !list_checkpoints(checkpoints()).empty(); }

std::optional<std::string> RunFolder::starting_point(const std::string& resume) const {
  const std::vector<int64_t> steps = list_checkpoints(checkpoints());
  if (resume.empty()) {
    if (used()) fail(kUsage, "{} already holds a run{}; give --resume auto to go on with it, or another name=...", path_,
                     steps.empty() ? std::string() : fmt::format(" (latest checkpoint: step {})", steps.back()));
    return {};
  }
  if (resume == "auto" && steps.empty()) return {};
  if (resume == "auto" || resume == "latest") {
    if (steps.empty())
      fail(kUsage, "--resume latest: {} holds no complete checkpoint; use --resume auto to start from the beginning when there is none",
           checkpoints());
    return checkpoint_path(checkpoints(), steps.back());
  }
  if (resume.find_first_not_of("0123456789") == std::string::npos) {
    const int64_t step = resume.size() > 18 ? -1 : std::stoll(resume);      // longer ones do not fit, and are no step of any run
    for (int64_t s : steps) if (s == step) return checkpoint_path(checkpoints(), step);
    fail(kUsage, "--resume {}: {} holds no complete checkpoint of that step; there are: {}", resume, checkpoints(),
         steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", ")));
  }
  if (!fs::is_directory(resume))
    fail(kUsage, "--resume {}: no such checkpoint; say auto, latest, a step, or the path of a checkpoint folder", resume);
  return resume;
}

int64_t RunFolder::set_aside_after(int64_t step) const {
  int64_t moved = 0;
  for (int64_t later : list_checkpoints(checkpoints())) {
    if (later <= step) continue;
    std::string aside = fmt::format("{}.after-step-{}", checkpoints(), step);
    fs::create_directories(aside);
    std::string target = checkpoint_path(aside, later);
    for (int i = 2; fs::exists(target); i++) target = fmt::format("{}.{}", checkpoint_path(aside, later), i);
    fs::rename(checkpoint_path(checkpoints(), later), target);
    moved++;
  }
  return moved;
}

void RunFolder::write_records(const std::string& resolved, const std::vector<std::string>& argv) const {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  nlohmann::ordered_json j{{"version", version()},
                           {"git", git_revision()},
                           {"argv", argv},
                           {"host", host},
                           {"cpu_tier", isa::name_of(isa::tier())},
                           {"config_hash", fmt::format("{:016x}", std::hash<std::string>{}(resolved))},
                           {"started", std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()}};
  std::ofstream(path_ + "/config.yaml") << resolved;
  std::ofstream(path_ + "/run.json") << j.dump(2) << "\n";
}

std::vector<std::string> check_same_run(const std::string& saved_config, const std::string& config, const std::string& checkpoint) {
  auto before = sections(saved_config), now = sections(config);
  std::string refused;
  std::vector<std::string> changed;
  std::map<std::string, bool> keys;
  for (const auto& s : before) keys[s.first] = true;
  for (const auto& s : now) keys[s.first] = true;
  for (const auto& [key, _] : keys) {
    if (before[key] == now[key] || key == "name" || key == "run") continue;
    const std::string what = fmt::format("{}: {}", key, first_difference(before[key], now[key]));
    if (key == "model" || key == "data" || key == "seed" || key == "compute") refused += "\n  " + what;
    else changed.push_back(what);
  }
  if (!refused.empty())
    fail(kUsage, "{} belongs to another config:{}\nresume with the config stored in the run folder, or start a run under another name",
         checkpoint, refused);
  return changed;
}

}  // namespace wyvern
