// Whole files in and out, with errors that name them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace wyvern {

std::string read_file(const std::string& path);       // Error when missing, a folder or unreadable
// Writes the parts to <path>.partial, fsyncs, renames it to `path`, fsyncs the folder: a crash leaves old or new, never half.
void write_atomically(const std::string& path, const std::vector<std::string_view>& parts);

}  // namespace wyvern
