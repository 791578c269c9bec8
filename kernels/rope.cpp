#include "kernels/rope.h"

namespace wyvern {

void rope(Stream& s, const Rope& a) {
  const Tensor &x = a.x.matrix, &out = a.out.matrix;
  CHECK(x.ndim == 2 && out.ndim == 2 && x.dim[0] == out.dim[0] && x.dtype == out.dtype, "out {}, x {}", to_string(out), to_string(x));
  CHECK(a.D > 0 && a.D % 2 == 0 && a.inv_freq != nullptr, "D = {} must be even", a.D);
  CHECK(a.x.offset + a.groups * a.D <= x.dim[1] && a.out.offset + a.groups * a.D <= out.dim[1], "{} groups of {}", a.groups, a.D);
  CHECK(a.positions.numel() == x.dim[0] && a.positions.dtype == DType::i32, "positions {}", to_string(a.positions));
  DISPATCH(s, rope, a);
}

}  // namespace wyvern
