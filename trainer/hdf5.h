// HDF5 handles that close themselves and calls that throw. The C API of 1.10; the serial flavour.
// Files are written for readers of any age (h5dump, h5py); bf16 is a custom 16-bit float type that both read as numbers.
// HDF5's file locks are off: a checkpoint never changes once it has its name, and many network file systems have no locks.
#pragma once
#include <hdf5.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/tensor.h"

namespace wyvern::h5 {

class Handle {                      // an hid_t with its closing function
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what);     // throws when id < 0, with HDF5's own error text
  Handle(Handle&& o) noexcept : id_(std::exchange(o.id_, -1)), close_(o.close_) {}
  Handle& operator=(Handle&& o) noexcept { std::swap(id_, o.id_); std::swap(close_, o.close_); return *this; }
  ~Handle() { if (id_ >= 0) close_(id_); }
  operator hid_t() const { return id_; }   // NOLINT: it is one
  void close(const std::string& what);     // checked. A written file must end with it: much of it reaches the disk only here

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

// A block of a tensor: `count` elements per dim, at corner `local` in a rank's tensor and at corner `global` in the logical one.
struct Slab { Shape local, global, count; };
// Where a virtual dataset finds some of its elements: the dataset of the same path in `file` (beside the index), of shape `shape`.
struct Source { std::string file; Shape shape; std::vector<Slab> slabs; };
struct Stored { std::string path; DType dtype; Shape shape; };

void check(herr_t status, const std::string& what, int code = kRuntime);   // Error with HDF5's error text
Handle create_file(const std::string& path);                            // libver (EARLIEST, V110)
Handle open_file(const std::string& path);                              // read-only
Handle type_of(DType);                                                  // bf16: a custom IEEE-like 16-bit float

void write_tensor(hid_t file, const std::string& path, const Tensor&);  // creates groups on the way; chunked with fletcher32
// One logical tensor over the files of several ranks, for any reader of HDF5. It reads as NaN, without an error, where a file is
// missing; so we ourselves read the sources.
void write_virtual(hid_t file, const std::string& path, DType, const Shape& shape, const std::vector<Source>&);
void write_text(hid_t file, const std::string& path, const std::string&);
void write_attribute(hid_t file, const std::string& group, const std::string& name, int64_t value);   // creates the group
void write_attribute(hid_t file, const std::string& group, const std::string& name, const std::string& value);

// Readers: Error(kCorrupt) naming file and dataset. Type and shape must be the stored ones: nothing is converted here.
std::vector<Stored> list_tensors(hid_t file, const std::string& group); // below `group`, by name; empty when there is no such group
void read_tensor(hid_t file, const std::string& path, const Tensor& out);
// Elements at `from` of the dataset to `to` of out, `count` per dim.
void read_block(hid_t file, const std::string& path, const Shape& from, const Tensor& out, const Shape& to, const Shape& count);
std::vector<Source> sources_of(hid_t file, const std::string& path);    // what write_virtual was given, but for the shapes: not stored
std::string read_text(hid_t file, const std::string& path);
int64_t read_integer(hid_t file, const std::string& group, const std::string& attribute);
std::string read_string(hid_t file, const std::string& group, const std::string& attribute);

}  // namespace wyvern::h5
