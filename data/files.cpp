#include "data/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "data/utf8.h"
#include "kernels/base/check.h"

namespace wyvern {
namespace {

[[noreturn]] void fail_errno(const std::string& path, const char* what) {
  fail(kRuntime, "{}: cannot {}: {}", path, what, std::strerror(errno));
}

struct Descriptor {
  int fd;
  ~Descriptor() { if (fd >= 0) ::close(fd); }
};

void sync_folder(const std::filesystem::path& file) {
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  const Descriptor d{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (d.fd < 0 || ::fsync(d.fd) != 0) fail_errno(folder, "make the folder's new entry durable");
}

}  // namespace

std::string read_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(kUsage, "{}: no such file", path);
  if (std::filesystem::is_directory(status)) fail(kUsage, "{}: is a folder, expected a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(kUsage, "{}: cannot be read: {}", path, std::strerror(errno));
  std::string out;
  const auto size = std::filesystem::file_size(path, error);
  if (!error) out.reserve(size);
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer), in.gcount() > 0) out.append(buffer, size_t(in.gcount()));
  if (in.bad()) fail(kRuntime, "{}: reading stopped after {} bytes: {}", path, out.size(), std::strerror(errno));
  return out;
}

bool looks_binary(std::string_view start) {
  if (start.find('\0') != start.npos) return true;
  const int64_t bad = invalid_utf8_at(start);
  return bad >= 0 && size_t(bad) + 4 <= start.size();                    // within the last three bytes: a character cut in two
}

std::string read_text_file(const std::string& path) {
  std::string text = read_file(path);
  if (text.empty()) fail(kUsage, "{}: the file is empty", path);
  if (const size_t zero = std::string_view(text).substr(0, kTextStart).find('\0'); zero != text.npos)
    fail(kUsage, "{}: not a text, byte {} is zero; unpack it, or convert it to UTF-8", path, zero);
  require_utf8(text, path);
  return text;
}

void write_atomically(const std::string& path, const std::vector<std::string_view>& parts) {
  const std::string aside = path + ".partial";
  {
    const Descriptor d{::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (d.fd < 0) fail_errno(aside, "create");
    for (std::string_view part : parts) {
      while (!part.empty()) {
        const ssize_t written = ::write(d.fd, part.data(), part.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail_errno(aside, "write");
        part.remove_prefix(size_t(written));
      }
    }
    if (::fsync(d.fd) != 0) fail_errno(aside, "flush to disk");
  }
  if (::rename(aside.c_str(), path.c_str()) != 0) fail_errno(path, "rename into place");
  sync_folder(path);
}

}  // namespace wyvern
