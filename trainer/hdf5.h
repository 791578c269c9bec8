// HDF5 handles that close themselves and calls that throw. The C API of 1.10; the serial flavour.
#pragma once
#include <hdf5.h>

#include <string>
#include <utility>

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

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

void check(herr_t status, const std::string& what);                     // Error(kRuntime) with HDF5's error text
Handle create_file(const std::string& path);                            // libver (EARLIEST, V110)
Handle open_file(const std::string& path);                              // read-only
Handle type_of(DType);                                                  // bf16: a custom IEEE-like 16-bit float
void write_tensor(hid_t file, const std::string& path, const Tensor&);  // creates groups on the way; chunked with fletcher32
void write_text(hid_t file, const std::string& path, const std::string&);
std::string read_text(hid_t file, const std::string& path);

}  // namespace wyvern::h5
