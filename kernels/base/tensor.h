// Tensor: a contiguous row-major VIEW. It never owns, never frees, and is copied freely.
// ndim == 0 means "absent" (an optional argument left out); a null pointer alone only means a dry pass.
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"

namespace wyvern {

using Shape = std::vector<int64_t>;

struct Device {
  enum Kind : uint8_t { cpu, cuda } kind = cpu;
  int index = 0;
};

struct Tensor {
  static constexpr int kMaxDims = 5;
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device = {};
  int ndim = 0;
  int64_t dim[kMaxDims] = {};

  explicit operator bool() const { return ndim > 0; }
  int64_t numel() const {
    int64_t n = ndim ? 1 : 0;
    for (int i = 0; i < ndim; i++) n *= dim[i];
    return n;
  }
  int64_t bytes() const { return numel() * bytes_of(dtype); }
};

std::string to_string(const Tensor&);                              // "bf16 (4, 768)", for messages
Tensor view(void* data, DType, const Shape& dims, Device = {});    // a view of foreign memory
Tensor rows(Tensor, int64_t begin, int64_t end);                   // slice of dim 0: the only slice there is
Tensor reshape(Tensor, const Shape& dims);                         // same elements, other dims
bool   is(const Tensor&, std::initializer_list<int64_t> dims);     // present, and exactly this shape
Shape  shape_of(const Tensor&);
std::string to_string(const Shape&);

template <class T> T* as(const Tensor& t) {
  CHECK(t.dtype == dtype_of<T>, "tensor is {}, wanted {}", name_of(t.dtype), name_of(dtype_of<T>));
  return static_cast<T*>(t.data);
}

// A run of heads (or of norm groups) inside the columns of a wider matrix:
// element (n, g, d) of G groups of D channels = matrix[n * W + offset + g * D + d], W = matrix.dim[1].
struct Columns {
  Tensor matrix;       // (N, W)
  int64_t offset = 0;
};

}  // namespace wyvern
