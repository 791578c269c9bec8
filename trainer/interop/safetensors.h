// safetensors, the weight files of Hugging Face folders:
//   u64 header length N, little endian | N bytes of JSON: name -> {dtype, shape, data_offsets: [begin, end)} | buffer
// Offsets count from the start of the buffer; tensors are row-major, little endian, and cover the buffer without hole or overlap.
// Everything is checked when a file is opened (Error kCorrupt names file, tensor and numbers); values are read from the mapping later.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/tensor.h"

namespace wyvern {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // as the format spells it: F64 F32 F16 BF16, integers, BOOL, 8-bit floats
  Shape shape;                 // empty: a scalar
  std::string_view bytes;      // elements x size of dtype; lives as long as the file it was read from

  int64_t numel() const;
  bool floating() const { return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16"; }
};

// Values in row-major order, exact where T can hold them, else rounded to nearest even (F64 to bf16 by way of f32). T: double, float,
// bf16. A tensor that is not floating() is an Error.
template <class T> std::vector<T> values_of(const SafetensorsTensor&);

class SafetensorsFile {                                                // memory-mapped
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }      // in the order of the buffer

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const char*) const;
  };
  std::string path_;
  std::unique_ptr<const char, Unmap> memory_{nullptr, Unmap{0}};
  std::vector<SafetensorsTensor> tensors_;
};

// The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json lists. The index and the shards must
// name exactly the same tensors.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& folder);
  const std::map<std::string, const SafetensorsTensor*>& tensors() const { return by_name_; }
  const SafetensorsTensor* find(const std::string& name) const;        // null when there is none

 private:
  void open_shards(const std::string& folder, const std::string& index);
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsTensor*> by_name_;
};

// Writes aside and renames: a crash leaves the old file or the new one. __metadata__ is {"format": "pt"}, which transformers demands.
// Wider types come first and the header is padded to 8 bytes, so that every tensor is aligned to its element.
void write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors);

}  // namespace wyvern
