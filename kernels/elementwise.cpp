#include "kernels/elementwise.h"

namespace wyvern {

void zero(Stream& s, const Zero& a) {
  CHECK(a.y, "y is absent");
  DISPATCH(s, zero, a);
}
void add(Stream& s, const Add& a) {
  CHECK(a.y.numel() == a.a.numel() && a.y.numel() == a.b.numel() && a.y.dtype == a.a.dtype && a.y.dtype == a.b.dtype, "y {}, a {}, b {}",
        to_string(a.y), to_string(a.a), to_string(a.b));
  DISPATCH(s, add, a);
}
void cast(Stream& s, const Cast& a) {
  CHECK(a.y.numel() == a.x.numel(), "y {}, x {}", to_string(a.y), to_string(a.x));
  DISPATCH(s, cast, a);
}
void dropout(Stream& s, const Dropout& a) {
  CHECK(a.x.ndim == 2 && shape_of(a.y) == shape_of(a.x) && a.y.dtype == a.x.dtype, "y {}, x {}", to_string(a.y), to_string(a.x));
  CHECK(a.p >= 0 && a.p < 1 && a.T > 0 && a.x.dim[0] % a.T == 0, "p {}, T {}, x {}", a.p, a.T, to_string(a.x));
  DISPATCH(s, dropout, a);
}

}  // namespace wyvern
