// A folder that lives as long as one test, and how the tests of data/ say "this throws, and the message helps".
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>

#include "kernels/base/check.h"

namespace wyvern {

class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = std::filesystem::path(testing::TempDir()) / ("wyvern_data_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// fn must throw Error with this exit code, and the message must contain every one of `parts`.
inline void expect_error(int code, std::initializer_list<std::string> parts, const std::function<void()>& fn) {
  try {
    fn();
    ADD_FAILURE() << "no error; expected one about " << *parts.begin();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, code) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\nlacks: " << part;
  }
}

}  // namespace wyvern
