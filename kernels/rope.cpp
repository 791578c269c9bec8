#include "kernels/rope.h"

namespace wyvern {

void rope(Stream& s, const Rope& a) {
  const Tensor &x = a.x.matrix, &out = a.out.matrix;
  CHECK(x.ndim == 2 && out.ndim == 2 && x.dim[0] == out.dim[0] && x.dtype == out.dtype, "out {}, x {}", to_string(out), to_string(x));
  CHECK(a.D > 0 && a.D % 2 == 0 && a.inv_freq != nullptr, "D = {} must be even", a.D);
  for (const Columns& c : {a.x, a.out})
    CHECK(c.offset >= 0 && c.offset + a.groups * a.D <= c.matrix.dim[1], "{} groups of {} at column {} of {}", a.groups, a.D, c.offset,
          to_string(c.matrix));
  CHECK(a.positions.numel() == x.dim[0] && a.positions.dtype == DType::i32, "positions {}", to_string(a.positions));
  DISPATCH(s, rope, a);
}

}  // namespace wyvern
