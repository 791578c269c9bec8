// Checkpoints when the world fails: killed writers, full disks, damaged files; and which folders stay.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/data/temp_folder.h"
#include "tests/trainer/toy_store.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_files.h"

// In sanitized builds: HDF5 1.10 loses 424 bytes when it gives up on one of the damaged files below.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace wyvern {
namespace {

namespace fs = std::filesystem;

std::string save(const std::string& folder, Toy& toy, int64_t step, int64_t tokens = 0) {
  return save_checkpoint(folder, {.step = step, .tokens = tokens, .compute = "f32"}, toy.store, &toy.optimizer, toy.stream);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(folder)) names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Saves for ever: steps 0, 1, 2, 0, ... so that checkpoints are also replaced. The values follow from `tokens`.
[[noreturn]] void save_for_ever(const std::string& folder) {
  Toy toy(DType::f32);
  for (int64_t n = 0;; n++) {
    toy.fill(uint64_t(n));
    save(folder, toy, n % 3, n);
  }
}

TEST(Checkpoint, S62_KilledWhileSaving) {
  TempFolder temp;
  const std::string folder = temp / "a";
  Toy toy(DType::f32);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t n = 0; n < 3; n++) save(temp / "timed", toy, n);
  const std::chrono::duration<double> three_saves = std::chrono::steady_clock::now() - start;
  size_t seen = 0, leftovers = 0;
  for (int round = 0; round < 12; round++) {
    const pid_t child = ::fork();
    if (child == 0) save_for_ever(folder);
    std::this_thread::sleep_for(three_saves * (0.3 + 1.7 * (round * 5 % 12) / 12.0));         // anywhere in six saves
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (int64_t step : list_checkpoints(folder)) {
      const std::string path = checkpoint_path(folder, step);
      const CheckpointMeta meta = read_checkpoint_meta(path);
      Toy loaded(DType::f32), &wanted = toy;
      wanted.fill(uint64_t(meta.tokens));
      load_checkpoint(path, loaded.store, &loaded.optimizer, loaded.stream, false);
      ASSERT_TRUE(loaded.bytes() == wanted.bytes()) << path << " after round " << round;
      seen++;
    }
    if (!fs::is_directory(folder)) continue;
    for (const std::string& name : names_in(folder)) leftovers += name.ends_with(".partial");
    prune_checkpoints(folder, 3, 0);
    for (const std::string& name : names_in(folder)) EXPECT_FALSE(name.ends_with(".partial")) << name;
  }
  EXPECT_GT(seen, 0u) << "no save was finished: the test did not test";
  EXPECT_GT(leftovers, 0u) << "no save was interrupted: the test did not test";
}

TEST(Checkpoint, S62_PartialFoldersAreNoCheckpoints) {
  TempFolder temp;
  Toy toy(DType::f32);
  const std::string path = save(temp / "a", toy, 5);
  fs::copy(path, temp / "a/step-00000006.partial");
  fs::remove(temp / "a/step-00000006.partial/manifest.json");
  EXPECT_EQ(list_checkpoints(temp / "a"), std::vector<int64_t>{5});
  expect_error(kCorrupt, {"step-00000006.partial", "no complete checkpoint"},
               [&] { read_checkpoint_meta(temp / "a/step-00000006.partial"); });
}

class FileSizeLimit {                        // ulimit -f, in bytes
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit now = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  struct rlimit before_;
};

TEST(Checkpoint, S63_DiskFull) {
  TempFolder temp;
  Toy toy(DType::f32), loaded(DType::f32);
  toy.fill(1);
  save(temp / "a", toy, 1);
  int64_t whole = 0;
  for (const auto& e : fs::directory_iterator(checkpoint_path(temp / "a", 1))) whole = std::max(whole, int64_t(e.file_size()));
  for (int64_t limit : {int64_t(100), int64_t(3000), whole / 4, whole / 2, whole - 1}) {
    const FileSizeLimit full{rlim_t(limit)};
    expect_error(kRuntime, {"step 2 could not be saved", temp / "a/step-00000002.partial/", "File too large", "earlier checkpoints in"},
                 [&] { save(temp / "a", toy, 2); });
    expect_error(kRuntime, {"step 1 could not be saved", "File too large"}, [&] { save(temp / "a", toy, 1); });
    EXPECT_EQ(names_in(temp / "a"), std::vector<std::string>{"step-00000001"}) << "at " << limit << " of " << whole << " bytes";
  }
  load_checkpoint(checkpoint_path(temp / "a", 1), loaded.store, &loaded.optimizer, loaded.stream, false);
  EXPECT_TRUE(loaded.bytes() == toy.bytes());
  save(temp / "a", toy, 2);                                        // HDF5 is still well after its files failed
  EXPECT_EQ(list_checkpoints(temp / "a"), (std::vector<int64_t>{1, 2}));
}

TEST(Checkpoint, S63_NoRoomIsSeenBeforeAnythingIsWritten) {
  TempFolder temp;
  Arena arena = Arena::counting();
  Mesh mesh = Mesh::single();
  ParamStore store(arena, mesh, DType::f32);
  Stream stream;
  store.add(stream, {.name = "huge.weight", .shape = {int64_t(1) << 40, 1024}});      // 4.5 PB
  expect_error(kRuntime, {temp / "a", "4503599629.5 MB", "MB are free"}, [&] { check_checkpoint_room(temp / "a", store, nullptr); });
  expect_error(kRuntime, {"4503599629.5 MB", "could not be saved"},
               [&] { save_checkpoint(temp / "a", {.step = 1}, store, nullptr, stream); });
  EXPECT_TRUE(fs::is_empty(temp / "a"));
}

TEST(Checkpoint, S63_FolderThatCannotBeWritten) {
  TempFolder temp;
  Toy toy(DType::f32);
  temp.write("file", "x");
  expect_error(kRuntime, {temp / "file", "Not a directory"}, [&] { save(temp / "file/checkpoints", toy, 1); });
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere: read-only folders are not tried";
  fs::create_directory(temp / "a");
  fs::permissions(temp / "a", fs::perms::owner_read | fs::perms::owner_exec);
  expect_error(kRuntime, {temp / "a", "Permission denied"}, [&] { save(temp / "a", toy, 1); });
  fs::permissions(temp / "a", fs::perms::owner_all);
}

void flip(const std::string& path, int64_t at) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const char c = char(f.get() ^ 0x10);
  f.seekp(at);
  f.put(c);
}

void expect_corrupt(const std::string& checkpoint, const std::string& file) {
  Toy toy(DType::f32);
  expect_error(kCorrupt, {checkpoint + "/" + file}, [&] { read_checkpoint_meta(checkpoint); });
  expect_error(kCorrupt, {checkpoint + "/" + file}, [&] { load_checkpoint(checkpoint, toy.store, &toy.optimizer, toy.stream, false); });
  expect_error(kCorrupt, {checkpoint + "/" + file}, [&] { verify_checkpoint(checkpoint, false); });
}

TEST(Checkpoint, S64_DamagedFilesAreNamed) {
  TempFolder temp;
  Toy toy(DType::f32);
  toy.fill(2);
  const std::string good = save(temp / "good", toy, 1), bad = temp / "bad";
  const auto damage = [&](const std::string& file, const std::function<void(const std::string&)>& how) {
    fs::remove_all(bad);
    fs::copy(good, bad);
    how(bad + "/" + file);
    expect_corrupt(bad, file);
  };
  for (const std::string file : {"rank-00000.h5", "checkpoint.h5"}) {
    const auto size = int64_t(fs::file_size(good + "/" + file));
    damage(file, [&](const std::string& p) { flip(p, size / 2); });
    damage(file, [&](const std::string& p) { flip(p, 9); });                          // in the superblock
    damage(file, [&](const std::string& p) { fs::resize_file(p, uintmax_t(size - 100)); });
    damage(file, [&](const std::string& p) { fs::resize_file(p, 0); });
    damage(file, [&](const std::string& p) { fs::remove(p); });
  }
}

TEST(Checkpoint, S64_VerifyNamesTheDataset) {
  TempFolder temp;
  Toy toy(DType::f32);
  toy.fill(3);
  const std::string path = save(temp / "a", toy, 1), file = path + "/rank-00000.h5";
  const Tensor wide = toy.store.at("layers.10.wide.weight").value;
  const size_t at = slurp(file).find(std::string(static_cast<const char*>(wide.data) + 4096, 64));     // inside its first chunk
  ASSERT_NE(at, std::string::npos);
  flip(file, int64_t(at));
  expect_error(kCorrupt, {file, "/params/layers.10.wide.weight", "XXH3"}, [&] { verify_checkpoint(path, true); });
}

TEST(Checkpoint, S64_AnyFlippedByteIsFoundAndNothingCrashes) {
  TempFolder temp;
  Toy toy(DType::f32);
  const std::string path = save(temp / "a", toy, 1), file = path + "/rank-00000.h5";
  const auto size = int64_t(fs::file_size(file));
  for (int64_t at = 0; at < size; at += at < 8000 ? 101 : 30011) {                    // densely where HDF5's own structures lie
    flip(file, at);
    expect_error(kCorrupt, {file, "XXH3"}, [&] { verify_checkpoint(path, false); });
    flip(file, at);
  }
  verify_checkpoint(path, false);
}

TEST(Checkpoint, S64_ForeignLocksDoNotMatter) {
  TempFolder temp;
  Toy toy(DType::f32);
  const std::string path = save(temp / "a", toy, 1);
  const int fd = ::open((path + "/rank-00000.h5").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  load_checkpoint(path, toy.store, &toy.optimizer, toy.stream, false);
  ::close(fd);
}

TEST(Checkpoint, PruneKeepsTheNewestAndMilestones) {
  TempFolder temp;
  const std::string folder = temp / "a";
  Toy toy(DType::f32);
  for (int64_t step : {10, 20, 30, 40, 50}) save(folder, toy, step);
  temp.write("a/step-00000060.partial/rank-00000.h5", "half");
  temp.write("a/notes.txt", "mine");
  fs::resize_file(checkpoint_path(folder, 50) + "/rank-00000.h5", 10);                // the newest is broken
  EXPECT_EQ(list_checkpoints(folder), (std::vector<int64_t>{10, 20, 30, 40}));
  prune_checkpoints(folder, 2, 20);
  EXPECT_EQ(list_checkpoints(folder), (std::vector<int64_t>{20, 30, 40}));
  prune_checkpoints(folder, 0, 0);
  const std::vector<std::string> wanted = {"notes.txt", "step-00000040", "step-00000050"};       // the broken one is for people to judge
  EXPECT_EQ(names_in(folder), wanted);
}

TEST(Checkpoint, AStepIsReplacedByEitherWay) {
  TempFolder temp;
  const std::string folder = temp / "a";
  Toy old_one(DType::f32), new_one(DType::f32), loaded(DType::f32);
  old_one.fill(1);
  new_one.fill(2);
  const std::string path = save(folder, old_one, 4);
  save(folder, new_one, 4);
  load_checkpoint(path, loaded.store, &loaded.optimizer, loaded.stream, false);
  EXPECT_TRUE(loaded.bytes() == new_one.bytes());
  const std::string other = save(temp / "b", old_one, 4);
  publish_in_two_steps(other, path);
  load_checkpoint(path, loaded.store, &loaded.optimizer, loaded.stream, false);
  EXPECT_TRUE(loaded.bytes() == old_one.bytes());
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"step-00000004"});

  fs::rename(path, path + ".replaced");                                               // a crash between the two steps
  prune_checkpoints(folder, 1, 0);
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"step-00000004.replaced"}) << "it may be the only one";
  save(folder, new_one, 4);
  prune_checkpoints(folder, 1, 0);
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"step-00000004"});
}

}  // namespace
}  // namespace wyvern
