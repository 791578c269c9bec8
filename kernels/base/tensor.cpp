#include "kernels/base/tensor.h"

#include <fmt/format.h>

namespace wyvern {

std::string to_string(const Shape& s) { return fmt::format("({})", fmt::join(s, ", ")); }
Shape shape_of(const Tensor& t) { return Shape(t.dim, t.dim + t.ndim); }
std::string to_string(const Tensor& t) {
  return t ? fmt::format("{} {}", name_of(t.dtype), to_string(shape_of(t))) : std::string("absent");
}

Tensor view(void* data, DType dtype, const Shape& dims, Device device) {
  CHECK(!dims.empty() && dims.size() <= Tensor::kMaxDims, "{} dims", dims.size());
  Tensor t;
  t.data = data; t.dtype = dtype; t.device = device; t.ndim = int(dims.size());
  for (size_t i = 0; i < dims.size(); i++) t.dim[i] = dims[i];
  return t;
}

Tensor rows(Tensor t, int64_t begin, int64_t end) {
  CHECK(t.ndim > 0 && 0 <= begin && begin <= end && end <= t.dim[0], "rows [{}, {}) of {}", begin, end, to_string(t));
  if (t.data && t.dim[0]) t.data = static_cast<char*>(t.data) + begin * (t.bytes() / t.dim[0]);
  t.dim[0] = end - begin;
  return t;
}

Tensor reshape(Tensor t, const Shape& dims) {
  Tensor r = view(t.data, t.dtype, dims, t.device);
  CHECK(r.numel() == t.numel(), "reshape {} to {}", to_string(t), to_string(dims));
  return r;
}

bool is(const Tensor& t, std::initializer_list<int64_t> dims) {
  if (t.ndim != int(dims.size())) return false;
  int i = 0;
  for (int64_t n : dims)
    if (t.dim[i++] != n) return false;
  return true;
}

}  // namespace wyvern
