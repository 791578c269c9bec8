// Documents of text files: a file is one document, of a .jsonl file each line {"text": ...} is one.
// Inputs are files, or folders searched for *.txt, *.md, *.text, *.jsonl and names without an extension, sorted by path;
// hidden names, other extensions, binaries and empty files inside folders are left out and counted in the log.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace wyvern {

class Documents {
 public:
  explicit Documents(const std::vector<std::string>& inputs);            // Error when an input is missing or gives no file
  // In order; every text is valid UTF-8 and not empty. May be called again: the files are read anew.
  void for_each(const std::function<void(std::string_view text)>& visit) const;
  const std::vector<std::string>& files() const { return files_; }

 private:
  std::vector<std::string> files_;
};

}  // namespace wyvern
