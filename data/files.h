// Whole files in and out, with errors that name them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace wyvern {

inline constexpr size_t kTextStart = 8192;                     // bytes that decide whether a file is a text

std::string read_file(const std::string& path);       // Error when missing, a folder or unreadable
// A text for training or evaluation: valid UTF-8, not empty, no zero bytes at the start (UTF-16, binaries). Else Error.
std::string read_text_file(const std::string& path);
bool looks_binary(std::string_view start);                   // zero bytes, or not UTF-8 even when a cut last character is forgiven
// Writes the parts to <path>.partial, fsyncs, renames it to `path`, fsyncs the folder: a crash leaves old or new, never half.
void write_atomically(const std::string& path, const std::vector<std::string_view>& parts);

}  // namespace wyvern
