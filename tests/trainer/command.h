// Runs the real binary in a folder of its own and keeps what it printed.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/data/temp_folder.h"

extern char** environ;

namespace wyvern {

using Words = std::vector<std::string>;

struct Finished {
  int code = -1;            // exit code, or 128 + signal
  std::string out, err;
  // stdout as exactly one JSON object and a line's end.
  nlohmann::ordered_json json() const {
    const auto j = nlohmann::ordered_json::parse(out, nullptr, false);
    EXPECT_TRUE(j.is_object() && out.back() == '\n') << "stdout is not one JSON object:\n" << out << "\nstderr:\n" << err;
    return j;
  }
};
struct Setting {
  std::string input;                          // standard input
  Words environment;                          // "NAME=value", over the test's own
  rlim_t largest_file = RLIM_INFINITY;        // bytes, as `ulimit -f` sets it: a disk that is full
};

// A running command. Its end is waited for; a test that fails in between kills it.
class Running {
 public:
  Running(const std::string& folder, const Words& words, const Setting& setting) : out_(folder + "/.stdout"), err_(folder + "/.stderr") {
    const std::string in = folder + "/.stdin";
    std::ofstream(in, std::ios::binary) << setting.input;
    Words all = {WYVERN_BINARY}, environment = setting.environment;
    all.insert(all.end(), words.begin(), words.end());
    for (char** e = environ; *e; e++)
      if (!overridden(*e, setting.environment)) environment.push_back(*e);
    std::vector<char*> argv, env;                                    // made before the fork: the child only makes system calls
    for (std::string& w : all) argv.push_back(w.data());
    for (std::string& e : environment) env.push_back(e.data());
    argv.push_back(nullptr);
    env.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const rlimit limit{setting.largest_file, setting.largest_file};
    const int fds[] = {open(in.c_str(), O_RDONLY), open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644),
                       open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644)};
    for (int i = 0; i < 3; i++)
      if (dup2(fds[i], i) < 0) _exit(126);
    if (chdir(folder.c_str()) != 0) _exit(126);
    if (setting.largest_file != RLIM_INFINITY && setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
    execve(argv[0], argv.data(), env.data());
    _exit(127);
  }
  ~Running() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;

  void signal(int s) const { kill(pid_, s); }
  std::string err() const { return slurp(err_); }      // so far
  // Until `seen` says so; false when the command ended first, or after two minutes.
  bool wait_until(const std::function<bool()>& seen) {
    for (int i = 0; i < 40000; i++) {
      if (seen()) return true;
      if (i % 16 == 15 && ended()) return seen();
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    return false;
  }
  Finished wait() {
    EXPECT_TRUE(wait_until([this] { return ended(); })) << "the command does not end:\n" << err();
    if (!ended()) return {};
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), slurp(out_), slurp(err_)};
  }

 private:
  static bool overridden(const std::string& entry, const Words& by) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    return std::any_of(by.begin(), by.end(), [&](const std::string& e) { return e.rfind(name, 0) == 0; });
  }
  bool ended() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
    return pid_ <= 0;
  }
  std::string out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
};

// A folder, and commands that run in it. Paths in words are relative to it.
class Workplace {
 public:
  std::string operator/(const std::string& name) const { return temp_ / name; }
  std::string write(const std::string& name, const std::string& bytes) const { return temp_.write(name, bytes); }
  std::string path() const { return temp_ / "."; }
  Finished run(const Words& words, const Setting& setting = {}) const { return Running(path(), words, setting).wait(); }
  // Exit code 0 and one JSON object.
  nlohmann::ordered_json json(Words words, const Setting& setting = {}) const {
    words.push_back("--json");
    const Finished f = run(words, setting);
    EXPECT_EQ(f.code, 0) << f.err;
    return f.json();
  }
  // Fails with this code, says every one of `parts` on stderr and nothing on stdout; never as a bug.
  void refused(int code, const Words& parts, const Words& words, const Setting& setting = {}) const {
    const Finished f = run(words, setting);
    std::string command;
    for (const std::string& w : words) command += " " + w;
    EXPECT_EQ(f.code, code) << "wyvern" << command << "\n" << f.err;
    EXPECT_TRUE(f.out.empty()) << "wyvern" << command << " printed:\n" << f.out.substr(0, 300);
    EXPECT_EQ(f.err.find(": bug: "), std::string::npos) << "wyvern" << command << "\n" << f.err;
    for (const std::string& part : parts)
      EXPECT_NE(f.err.find(part), std::string::npos) << "wyvern" << command << "\n" << f.err << "lacks: " << part;
  }

 private:
  TempFolder temp_;
};

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(WYVERN_BINARY)) GTEST_SKIP() << "the program is not built: " << WYVERN_BINARY;
  }
  Workplace work;
};

inline std::string preset(const std::string& name) { return std::string(WYVERN_SOURCE) + "/configs/" + name + ".yaml"; }
inline Words presets() {
  Words names;
  for (const auto& f : std::filesystem::directory_iterator(std::string(WYVERN_SOURCE) + "/configs"))
    if (f.path().extension() == ".yaml") names.push_back(f.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}
inline Words keys_of(const nlohmann::ordered_json& j) {
  Words keys;
  for (const auto& [key, value] : j.items()) keys.push_back(key);
  return keys;
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace wyvern
