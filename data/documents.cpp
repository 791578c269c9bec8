#include "data/documents.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/files.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace wyvern {
namespace {

namespace fs = std::filesystem;

std::string extension_of(const fs::path& path) {
  std::string out = path.extension().string();
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return char(std::tolower(uint8_t(c))); });
  return out;
}

bool is_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(kUsage, "{}: cannot be read", path.string());
  std::string start(kTextStart, '\0');
  in.read(start.data(), std::streamsize(start.size()));
  start.resize(size_t(in.gcount()));
  if (extension_of(path).empty()) return !start.empty() && !looks_binary(start);
  return !start.empty() && start.find('\0') == start.npos;               // a .txt that is not UTF-8 is an error later, not a binary
}

std::vector<std::string> texts_in(const std::string& folder) {
  static const std::set<std::string> kExtensions = {"", ".txt", ".md", ".text", ".jsonl"};
  std::vector<std::string> out;
  int64_t others = 0;
  try {
    for (fs::recursive_directory_iterator it(folder), end; it != end; ++it) {
      const fs::path& path = it->path();
      const bool hidden = path.filename().string().starts_with('.');
      if (hidden && it->is_directory()) it.disable_recursion_pending();
      if (!it->is_regular_file()) continue;
      if (!hidden && kExtensions.contains(extension_of(path)) && is_text(path)) out.push_back(path.string());
      else others++;
    }
  } catch (const fs::filesystem_error& e) {
    fail(kUsage, "{}: the folder cannot be searched: {}", folder, e.code().message());
  }
  if (out.empty())
    fail(kUsage, "{}: no text in this folder (looked for *.txt, *.md, *.text, *.jsonl and names without an extension; {} other files)",
         folder, others);
  if (others) log_info("{}: {} files are not text and were left out", folder, others);
  std::sort(out.begin(), out.end());
  return out;
}

void visit_lines(const std::string& path, const std::function<void(std::string_view)>& visit) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(kUsage, "{}: cannot be read", path);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    std::string text;
    try {
      const auto json = nlohmann::json::parse(line);                     // also refuses what is not UTF-8
      text = json.at("text").get<std::string>();
    } catch (const nlohmann::json::exception& e) {
      fail(kCorrupt, "{}:{}: not a line of the form {{\"text\": \"...\"}}: {}", path, number, e.what());
    }
    if (!text.empty()) visit(text);
  }
  if (in.bad()) fail(kRuntime, "{}: reading stopped after line {}", path, number);
}

}  // namespace

Documents::Documents(const std::vector<std::string>& inputs) {
  if (inputs.empty()) fail(kUsage, "no input: name text files or folders");
  std::set<fs::path> seen;
  const auto add = [&](const std::string& path) {
    if (seen.insert(fs::canonical(path)).second) files_.push_back(path);
    else log_warning("{}: named twice, used once", path);
  };
  for (const std::string& input : inputs) {
    if (!fs::exists(input)) fail(kUsage, "{}: no such file or folder", input);
    if (!fs::is_directory(input)) add(input);
    else for (const std::string& path : texts_in(input)) add(path);
  }
}

void Documents::for_each(const std::function<void(std::string_view)>& visit) const {
  for (const std::string& path : files_) {
    if (extension_of(path) == ".jsonl") visit_lines(path, visit);
    else visit(read_text_file(path));
  }
}

}  // namespace wyvern
