#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "trainer/checkpoint.h"
#include "trainer/checkpoint_contents.h"
#include "trainer/checkpoint_files.h"
#include "trainer/hdf5.h"

namespace wyvern {
namespace {

// "layers.2" before "layers.10": runs of digits compare as numbers.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    size_t p = i, q = j;
    while (p < a.size() && digit(a[p])) p++;
    while (q < b.size() && digit(b[q])) q++;
    if (p > i && q > j && p - i != q - j) return p - i < q - j;    // names carry no leading zeros
    if (a[i] != b[j]) return a[i] < b[j];
    i++, j++;
  }
  return a.size() - i < b.size() - j;
}

int64_t numel(const h5::Stored& s) {
  int64_t n = 1;
  for (int64_t d : s.shape) n *= d;
  return n;
}
int64_t bytes(const h5::Stored& s) { return numel(s) * bytes_of(s.dtype); }

struct Contents {
  Manifest manifest;
  CheckpointMeta meta;
  std::string writer;                // program and version, for people
  std::vector<h5::Stored> tensors;
};

Contents contents_of(const std::string& checkpoint, Manifest manifest) {
  const h5::Handle index = h5::open_file(checkpoint + "/" + kIndexFile);
  Contents c{std::move(manifest), read_index_meta(index), h5::read_string(index, "/meta", "writer"), {}};
  for (const char* group : {"/params", "/buffers", "/optim"}) {
    std::vector<h5::Stored> in_group = h5::list_tensors(index, group);
    std::sort(in_group.begin(), in_group.end(), [](const auto& a, const auto& b) { return natural_less(a.path, b.path); });
    c.tensors.insert(c.tensors.end(), in_group.begin(), in_group.end());
  }
  return c;
}

struct Total { int64_t tensors = 0, elements = 0, bytes = 0; };

Total total_of(const Contents& c, const std::string& prefix) {
  Total t;
  for (const h5::Stored& s : c.tensors)
    if (s.path.starts_with(prefix)) t.tensors++, t.elements += numel(s), t.bytes += bytes(s);
  return t;
}

std::string table(const std::string& checkpoint, const Contents& c, bool verified) {
  const char* ok = verified ? "  ok" : "";
  size_t name = 4, shape = 5;
  for (const h5::Stored& s : c.tensors) name = std::max(name, s.path.size()), shape = std::max(shape, to_string(s.shape).size());
  std::string out = fmt::format("{}\nstep {}, {} tokens, compute {}, written by {}\n\n", checkpoint, c.meta.step, c.meta.tokens,
                                c.meta.compute, c.writer);
  out += fmt::format("{:<{}}  {:<{}}  dtype  {:>14}{}\n", "name", name, "shape", shape, "bytes", verified ? "  checksum" : "");
  for (const h5::Stored& s : c.tensors)
    out += fmt::format("{:<{}}  {:<{}}  {:<5}  {:>14}{}\n", s.path, name, to_string(s.shape), shape, name_of(s.dtype), bytes(s), ok);
  out += "\n";
  for (const char* group : {"/params", "/buffers", "/optim", "/"})
    if (const Total t = total_of(c, group); t.tensors > 0)
      out += fmt::format("{:<9} {:>6} tensors {:>16} elements {:>16} bytes\n", group == std::string("/") ? "total" : group, t.tensors,
                         t.elements, t.bytes);
  out += "\n";
  for (const ManifestFile& f : c.manifest.files) out += fmt::format("{:<16} {:>16} bytes  XXH3 {}{}\n", f.name, f.bytes, f.xxh3, ok);
  out.pop_back();
  return out;
}

std::string json_text(const std::string& checkpoint, const Contents& c, bool verified) {
  using Json = nlohmann::ordered_json;
  Json j = {{"checkpoint", checkpoint}, {"version", kCheckpointVersion}, {"step", c.meta.step}, {"tokens", c.meta.tokens},
            {"compute", c.meta.compute}, {"writer", c.writer}, {"verified", verified},
            {"files", Json::array()}, {"datasets", Json::array()}, {"totals", Json::object()}};
  for (const ManifestFile& f : c.manifest.files) j["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3", f.xxh3}});
  for (const h5::Stored& s : c.tensors) {
    Json row = {{"name", s.path}, {"shape", s.shape}, {"dtype", name_of(s.dtype)}, {"bytes", bytes(s)}};
    if (verified) row["checksum"] = "ok";
    j["datasets"].push_back(row);
  }
  for (const char* group : {"params", "buffers", "optim", ""}) {
    const Total t = total_of(c, std::string("/") + group);
    j["totals"][*group ? group : "all"] = {{"tensors", t.tensors}, {"elements", t.elements}, {"bytes", t.bytes}};
  }
  return j.dump(2);
}

// Reads every tensor of a file as it lies there, which checks HDF5's own checksums. Returns the first complaint, or "".
std::string first_unreadable(const std::string& path) {
  try {
    const h5::Handle file = h5::open_file(path);
    for (const char* group : {"/params", "/buffers", "/optim"})
      for (const h5::Stored& s : h5::list_tensors(file, group)) {
        std::vector<char> memory(size_t(bytes(s)));
        h5::read_tensor(file, s.path, view(memory.data(), s.dtype, s.shape));
      }
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

std::string show_checkpoint(const std::string& checkpoint, bool json) {
  const Contents c = contents_of(checkpoint, read_manifest(checkpoint));
  return json ? json_text(checkpoint, c, false) : table(checkpoint, c, false);
}

std::string verify_checkpoint(const std::string& checkpoint, bool json) {
  Manifest manifest = read_manifest(checkpoint);
  for (const ManifestFile& f : manifest.files) {
    std::string changed, unreadable;
    try {
      check_hash(checkpoint, f);
    } catch (const Error& e) {
      changed = e.what();
    }
    if (f.name != kIndexFile) unreadable = first_unreadable(checkpoint + "/" + f.name);    // the index holds no tensor data
    if (!changed.empty() || !unreadable.empty())
      fail(kCorrupt, "{}{}{}", changed, changed.empty() || unreadable.empty() ? "" : "; ", unreadable);
  }
  const Contents c = contents_of(checkpoint, std::move(manifest));
  return json ? json_text(checkpoint, c, true) : table(checkpoint, c, true);
}

}  // namespace wyvern
