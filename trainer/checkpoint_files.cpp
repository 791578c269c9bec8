#include "trainer/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/files.h"
#include "kernels/base/log.h"
#include "trainer/checkpoint.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kFormat = "wyvern-checkpoint";
constexpr const char* kPartial = ".partial";
constexpr const char* kReplaced = ".replaced";

[[noreturn]] void fail_errno(const std::string& path, const char* what) {
  fail(kRuntime, "{}: cannot {}: {}", path, what, std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail_errno(path, "open");
  }
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  operator int() const { return fd_; }   // NOLINT: it is one

 private:
  int fd_;
};

void make_durable(const std::string& path) {               // a file's bytes, or a folder's entries
  if (::fsync(Descriptor(path)) != 0) fail_errno(path, "flush to disk");
}
std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string hash_of(const std::string& path) {
  const Descriptor file(path);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(4 << 20);
  for (ssize_t n; (n = ::read(file, buffer.data(), buffer.size())) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path, "read");
    XXH3_64bits_update(state.get(), buffer.data(), size_t(n));
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

Manifest parse_manifest(const std::string& path) {
  const nlohmann::json j = nlohmann::json::parse(read_file(path));
  if (j.at("format") != kFormat) fail(kCorrupt, "{}: format is {}, expected \"{}\"", path, j.at("format").dump(), kFormat);
  const auto version = j.at("version").get<int64_t>();
  if (version != kCheckpointVersion)
    fail(kCorrupt, "{}: checkpoint version {}; this build reads version {}: use the wyvern that wrote it, or a newer one", path, version,
         kCheckpointVersion);
  Manifest m{j.at("step").get<int64_t>(), j.at("tokens").get<int64_t>(), {}};
  for (const auto& f : j.at("files"))
    m.files.push_back({f.at("name").get<std::string>(), f.at("bytes").get<int64_t>(), f.at("xxh3").get<std::string>()});
  return m;
}

std::string name_of_step(int64_t step) { return fmt::format("step-{:08d}", step); }

// "step-00001000" + suffix -> 1000; nothing for any other name.
std::optional<int64_t> step_of(const std::string& name, const std::string& suffix = "") {
  constexpr size_t kPrefix = 5, kMostDigits = 18;          // of "step-"; what fits an int64_t
  if (name.size() < kPrefix + suffix.size() || !name.ends_with(suffix)) return {};
  const std::string digits = name.substr(kPrefix, name.size() - kPrefix - suffix.size());
  if (digits.empty() || digits.size() > kMostDigits || digits.find_first_not_of("0123456789") != std::string::npos) return {};
  const int64_t step = std::stoll(digits);
  return name_of_step(step) + suffix == name ? std::optional(step) : std::nullopt;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  if (!fs::is_directory(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// In two steps, so that a crash inside leaves a leftover and not a checkpoint with holes.
void remove_checkpoint(const std::string& path) {
  const std::string aside = path + kPartial;
  fs::rename(path, aside);
  fs::remove_all(aside);
}

void remove_leftovers(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    if (step_of(name, kPartial)) {
      log_warning("{}: removed: left by a save or a removal that was interrupted", path);
      fs::remove_all(path);
    } else if (const auto step = step_of(name, kReplaced)) {
      const std::string current = checkpoint_path(folder, *step);
      if (fs::exists(current)) fs::remove_all(path);
      else log_warning("{}: left by an interrupted save; rename it to {} to use it", path, current);
    }
  }
}

}  // namespace

std::string rank_file(int rank) { return fmt::format("rank-{:05d}.h5", rank); }

void write_manifest(const std::string& checkpoint, int64_t step, int64_t tokens, const std::vector<std::string>& names) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const std::string& name : names) {
    const std::string path = checkpoint + "/" + name;
    make_durable(path);
    files.push_back({{"name", name}, {"bytes", fs::file_size(path)}, {"xxh3", hash_of(path)}});
  }
  const nlohmann::ordered_json manifest = {
      {"format", kFormat}, {"version", kCheckpointVersion}, {"step", step}, {"tokens", tokens}, {"files", files}};
  const std::string text = manifest.dump(2) + "\n";
  write_atomically(checkpoint + "/" + kManifestFile, {text});
}

Manifest read_manifest(const std::string& checkpoint) {
  if (!fs::is_directory(checkpoint))
    fail(kUsage, "{}: no such checkpoint folder{}", checkpoint, fs::exists(checkpoint) ? " (it is a file: name the step's folder)" : "");
  const std::string path = checkpoint + "/" + kManifestFile;
  if (!fs::exists(path))
    fail(kCorrupt, "{}: is no complete checkpoint: it has no {}. Expected a folder step-NNNNNNNN with {}, {} and {}", checkpoint,
         kManifestFile, kManifestFile, kIndexFile, rank_file(0));
  Manifest m;
  try {
    m = parse_manifest(path);
  } catch (const nlohmann::json::exception& e) {
    fail(kCorrupt, "{}: is damaged: {}", path, e.what());
  }
  bool index = false;
  for (const ManifestFile& f : m.files) {
    const std::string file = checkpoint + "/" + f.name;
    if (f.name.empty() || f.name.find('/') != std::string::npos) fail(kCorrupt, "{}: names the file \"{}\"", path, f.name);
    if (!fs::is_regular_file(file)) fail(kCorrupt, "{}: is missing; the manifest lists it with {} bytes", file, f.bytes);
    const auto size = int64_t(fs::file_size(file));
    if (size != f.bytes) fail(kCorrupt, "{}: has {} bytes, {} when it was saved: cut or overwritten", file, size, f.bytes);
    index |= f.name == kIndexFile;
  }
  if (!index) fail(kCorrupt, "{}: does not list {}", path, kIndexFile);
  return m;
}

void check_hash(const std::string& checkpoint, const ManifestFile& f) {
  const std::string path = checkpoint + "/" + f.name, now = hash_of(path);
  if (now != f.xxh3)
    fail(kCorrupt, "{}: its bytes have changed since it was saved (XXH3 {}, was {}): use another checkpoint", path, now, f.xxh3);
}

void check_room(const std::string& folder, int64_t bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(kRuntime, "{}: cannot be made: {}", folder, error.message());
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_errno(folder, "write here");
  struct statvfs space;
  if (::statvfs(folder.c_str(), &space) != 0) fail_errno(folder, "ask for the free space");
  const auto available = double(space.f_bavail) * double(space.f_frsize);
  if (available < double(bytes))
    fail(kRuntime, "{}: a checkpoint takes {:.1f} MB, {:.1f} MB are free: free some space or change run.dir", folder, double(bytes) / 1e6,
         available / 1e6);
}

void publish_in_two_steps(const std::string& partial, const std::string& path) {
  const std::string replaced = path + kReplaced;
  fs::remove_all(replaced);
  fs::rename(path, replaced);
  std::error_code error;
  fs::rename(partial, path, error);
  if (error) {
    fs::rename(replaced, path);
    fail(kRuntime, "{}: cannot be renamed to {}: {}", partial, path, error.message());
  }
  make_durable(parent_of(path));
  fs::remove_all(replaced);
}

void publish(const std::string& partial, const std::string& path) {
  make_durable(partial);
  if (!fs::exists(path)) {
    fs::rename(partial, path);
    make_durable(parent_of(path));
  } else if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    make_durable(parent_of(path));
    fs::remove_all(partial);                               // the old one, under this name since the exchange
  } else {
    publish_in_two_steps(partial, path);
  }
}

std::string checkpoint_path(const std::string& folder, int64_t step) { return folder + "/" + name_of_step(step); }

std::vector<int64_t> list_checkpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    const auto step = step_of(name);
    if (!step) continue;
    try {
      const int64_t inside = read_manifest(folder + "/" + name).step;
      if (inside != *step) fail(kCorrupt, "{}/{}: its manifest says step {}", folder, name, inside);
      steps.push_back(*step);
    } catch (const std::exception& e) {
      log_warning("ignored: {}", e.what());
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void prune_checkpoints(const std::string& folder, int64_t keep, int64_t milestone) {
  try {
    remove_leftovers(folder);
    const std::vector<int64_t> steps = list_checkpoints(folder);
    const auto newest = std::max<int64_t>(keep, 1);
    for (int64_t i = 0; i + newest < int64_t(steps.size()); i++) {
      const int64_t step = steps[size_t(i)];
      if (milestone == 0 || step % milestone != 0) remove_checkpoint(checkpoint_path(folder, step));
    }
  } catch (const fs::filesystem_error& e) {
    fail(kRuntime, "{}: old checkpoints cannot be removed: {}", folder, e.what());
  }
}

}  // namespace wyvern
