#include "trainer/interop/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "data/files.h"
#include "trainer/interop/strict_json.h"

namespace wyvern {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors is little endian, and values are copied as they lie");

constexpr uint64_t kMaxHeader = 100'000'000;      // the cap of the reference reader
constexpr const char* kMetadata = "__metadata__";

int64_t element_bytes(std::string_view dtype) {   // 0: unknown
  static const std::map<std::string_view, int64_t> table = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4}, {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"U16", 2},
      {"I8", 1}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  const auto it = table.find(dtype);
  return it == table.end() ? 0 : it->second;
}

// shape x size of dtype, or -1 when it does not fit 63 bits.
int64_t byte_count(const SafetensorsTensor& t) {
  int64_t n = element_bytes(t.dtype);
  for (int64_t d : t.shape)
    if (__builtin_mul_overflow(n, d, &n)) return -1;
  return n;
}

struct Entry {                                    // a tensor as its header describes it
  SafetensorsTensor tensor;
  uint64_t begin = 0, end = 0;
};

std::vector<uint64_t> read_unsigned_list(const json& value, const std::string& what) {
  if (!value.is_array()) fail(kCorrupt, "{}: expected a list of integers, found {}", what, value.type_name());
  std::vector<uint64_t> out;
  for (const json& v : value) {
    if (!v.is_number_unsigned() || v.get<uint64_t>() > uint64_t(INT64_MAX))
      fail(kCorrupt, "{}: {} is not a non-negative integer", what, v.dump());
    out.push_back(v.get<uint64_t>());
  }
  return out;
}

Entry read_entry(const std::string& path, const std::string& name, const json& info) {
  const std::string what = fmt::format("{}: tensor \"{}\"", path, name);
  if (!info.is_object() || info.size() != 3 || !info.contains("dtype") || !info.contains("shape") || !info.contains("data_offsets"))
    fail(kCorrupt, "{}: expected exactly dtype, shape and data_offsets, found {}", what, info.dump());
  if (!info["dtype"].is_string()) fail(kCorrupt, "{}: dtype is {}, not a string", what, info["dtype"].dump());
  Entry e;
  e.tensor.name = name;
  e.tensor.dtype = info["dtype"].get<std::string>();
  if (element_bytes(e.tensor.dtype) == 0) fail(kCorrupt, "{}: unknown dtype {}", what, e.tensor.dtype);
  for (uint64_t d : read_unsigned_list(info["shape"], what + ": shape")) e.tensor.shape.push_back(int64_t(d));
  const std::vector<uint64_t> range = read_unsigned_list(info["data_offsets"], what + ": data_offsets");
  if (range.size() != 2 || range[0] > range[1])
    fail(kCorrupt, "{}: data_offsets {} is not [begin, end)", what, info["data_offsets"].dump());
  e.begin = range[0];
  e.end = range[1];
  const int64_t expected = byte_count(e.tensor);
  if (expected < 0) fail(kCorrupt, "{}: the bytes of {} {} do not fit 63 bits", what, e.tensor.dtype, to_string(e.tensor.shape));
  if (uint64_t(expected) != e.end - e.begin)
    fail(kCorrupt, "{}: {} {} takes {} bytes, but data_offsets [{}, {}) hold {}", what, e.tensor.dtype, to_string(e.tensor.shape), expected,
         e.begin, e.end, e.end - e.begin);
  return e;
}

std::vector<Entry> read_header(const std::string& path, std::string_view text) {
  if (text.empty() || text.front() != '{') fail(kCorrupt, "{}: the header does not start with '{{': not a safetensors file", path);
  const json header = parse_json(text, path + ": header", kCorrupt);
  std::vector<Entry> entries;
  for (const auto& [name, info] : header.items()) {
    if (name != kMetadata) {
      entries.push_back(read_entry(path, name, info));
      continue;
    }
    if (!info.is_object() || !std::all_of(info.begin(), info.end(), [](const json& v) { return v.is_string(); }))
      fail(kCorrupt, "{}: {} must map strings to strings, found {}", path, kMetadata, info.dump());
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  return entries;
}

// Sorted entries must lie end to end and fill the buffer.
void check_cover(const std::string& path, const std::vector<Entry>& entries, uint64_t buffer) {
  uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin < at)
      fail(kCorrupt, "{}: tensor \"{}\" begins at byte {} of the buffer and overlaps the one that ends at {}", path, e.tensor.name, e.begin,
           at);
    if (e.begin > at)
      fail(kCorrupt, "{}: tensor \"{}\" begins at byte {} of the buffer and leaves a hole after {}", path, e.tensor.name, e.begin, at);
    at = e.end;
  }
  if (at > buffer)
    fail(kCorrupt, "{}: truncated: the header describes {} bytes of values, the file holds {}; fetch it again", path, at, buffer);
  if (at < buffer) fail(kCorrupt, "{}: {} bytes follow the last tensor, which ends at byte {} of the buffer", path, buffer - at, at);
}

struct Half {                                     // IEEE binary16
  uint16_t bits;
  operator float() const {                        // NOLINT: like a cast between floating types; exact
    const uint32_t sign = uint32_t(bits >> 15) << 31, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float subnormal = float(fraction) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
  }
};

template <class S, class T> std::vector<T> convert(std::string_view bytes) {
  std::vector<T> out(bytes.size() / sizeof(S));
  for (size_t i = 0; i < out.size(); i++) {
    S s;
    std::memcpy(&s, bytes.data() + i * sizeof(S), sizeof(S));      // the buffer may start at any byte
    out[i] = T(static_cast<acc_t<T>>(s));
  }
  return out;
}

}  // namespace

int64_t SafetensorsTensor::numel() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

template <class T> std::vector<T> values_of(const SafetensorsTensor& t) {
  if (t.dtype == "F64") return convert<double, T>(t.bytes);
  if (t.dtype == "F32") return convert<float, T>(t.bytes);
  if (t.dtype == "F16") return convert<Half, T>(t.bytes);
  if (t.dtype == "BF16") return convert<bf16, T>(t.bytes);
  fail(kCorrupt, "tensor \"{}\" holds {}; weights are read from F64, F32, F16 and BF16", t.name, t.dtype);
}
template std::vector<double> values_of<double>(const SafetensorsTensor&);
template std::vector<float> values_of<float>(const SafetensorsTensor&);
template std::vector<bf16> values_of<bf16>(const SafetensorsTensor&);

void SafetensorsFile::Unmap::operator()(const char* p) const { ::munmap(const_cast<char*>(p), bytes); }

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  struct Descriptor {
    int fd;
    ~Descriptor() { if (fd >= 0) ::close(fd); }
  };
  const Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info {};
  if (d.fd < 0 || ::fstat(d.fd, &info) != 0) fail(kUsage, "{}: cannot be opened: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(kUsage, "{}: is not a file", path);
  const auto size = uint64_t(info.st_size);
  uint64_t length = 0;
  if (size < sizeof length) fail(kCorrupt, "{}: {} bytes are too few for a safetensors file", path, size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, d.fd, 0);
  if (memory == MAP_FAILED) fail(kRuntime, "{}: cannot be mapped: {}", path, std::strerror(errno));
  memory_ = {static_cast<const char*>(memory), Unmap{size_t(size)}};

  std::memcpy(&length, memory_.get(), sizeof length);
  if (length > kMaxHeader || length > size - sizeof length)
    fail(kCorrupt, "{}: a header of {} bytes does not fit (file {} bytes, limit {}): truncated, or not a safetensors file", path, length,
         size, kMaxHeader);
  const char* buffer = memory_.get() + sizeof length + length;
  std::vector<Entry> entries = read_header(path, {memory_.get() + sizeof length, size_t(length)});
  check_cover(path, entries, size - sizeof length - length);
  for (Entry& e : entries) {
    e.tensor.bytes = {buffer + e.begin, size_t(e.end - e.begin)};
    tensors_.push_back(std::move(e.tensor));
  }
}

SafetensorsFolder::SafetensorsFolder(const std::string& folder) {
  const std::string single = folder + "/model.safetensors", index = folder + "/model.safetensors.index.json";
  if (std::filesystem::exists(single)) {
    files_.emplace_back(single);
    for (const SafetensorsTensor& t : files_.back().tensors()) by_name_[t.name] = &t;
  } else if (std::filesystem::exists(index)) {
    open_shards(folder, index);
  } else {
    fail(kUsage, "{}: neither model.safetensors nor model.safetensors.index.json is there; other weight formats are not read", folder);
  }
}

void SafetensorsFolder::open_shards(const std::string& folder, const std::string& index) {
  const json document = parse_json(read_file(index), index, kCorrupt);
  if (!document.is_object() || !document.contains("weight_map") || !document["weight_map"].is_object())
    fail(kCorrupt, "{}: expected an object with a weight_map", index);
  std::map<std::string, std::set<std::string>> shards;      // file -> its tensors
  for (const auto& [name, file] : document["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().empty() || file.get<std::string>().find('/') != std::string::npos)
      fail(kCorrupt, "{}: tensor \"{}\" lies in {}, which is not the name of a file beside the index", index, name, file.dump());
    shards[file.get<std::string>()].insert(name);
  }
  for (auto& [file, wanted] : shards) {
    const std::string path = folder + "/" + file;
    if (!std::filesystem::exists(path)) fail(kCorrupt, "{}: names the shard {}, which is missing", index, file);
    files_.emplace_back(path);
    for (const SafetensorsTensor& t : files_.back().tensors()) {
      if (wanted.erase(t.name) == 0) fail(kCorrupt, "{}: holds tensor \"{}\", which {} does not place there", path, t.name, index);
      by_name_[t.name] = &t;
    }
    if (!wanted.empty()) fail(kCorrupt, "{}: places tensor \"{}\" in {}, which does not hold it", index, *wanted.begin(), file);
  }
}

const SafetensorsTensor* SafetensorsFolder::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

void write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return std::pair(-element_bytes(a.dtype), a.name) < std::pair(-element_bytes(b.dtype), b.name);
  });
  json header = {{kMetadata, {{"format", "pt"}}}};
  std::vector<std::string_view> parts(2);
  size_t at = 0;
  for (const SafetensorsTensor& t : tensors) {
    CHECK(element_bytes(t.dtype) > 0, "{}: dtype {}", t.name, t.dtype);
    CHECK(byte_count(t) == int64_t(t.bytes.size()), "{}: {} {} in {} bytes", t.name, t.dtype, to_string(t.shape), t.bytes.size());
    CHECK(!header.contains(t.name), "two tensors are called {}", t.name);
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes.size()}}};
    parts.push_back(t.bytes);
    at += t.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  parts[0] = {reinterpret_cast<const char*>(&length), sizeof length};
  parts[1] = text;
  write_atomically(path, parts);
}

}  // namespace wyvern
