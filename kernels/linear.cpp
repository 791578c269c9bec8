#include "kernels/linear.h"

namespace wyvern {

void linear_forward(Stream& s, const LinearForward& a) {
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  CHECK(is(a.x, {N, I}) && is(a.w, {O, I}) && is(a.y, {N, O}), "y {}, x {}, w {}", to_string(a.y), to_string(a.x), to_string(a.w));
  CHECK(!a.b || is(a.b, {O}), "b {}", to_string(a.b));
  CHECK(a.w.dtype == a.x.dtype && (!a.b || a.b.dtype == a.x.dtype), "x {}, w {}", to_string(a.x), to_string(a.w));
  CHECK(a.y.dtype == a.x.dtype || a.y.dtype == acc_of(a.x.dtype), "y {} from x {}", to_string(a.y), to_string(a.x));
  if (s.dry()) s.declare_workspace(cpu::workspace(a), 0);
  DISPATCH(s, linear_forward, a);
}

void linear_backward(Stream& s, const LinearBackward& a) {
  const int64_t N = a.x.dim[0], I = a.x.dim[1], O = a.w.dim[0];
  CHECK(is(a.x, {N, I}) && is(a.w, {O, I}) && is(a.dy, {N, O}), "dy {}, x {}, w {}", to_string(a.dy), to_string(a.x), to_string(a.w));
  CHECK((!a.dx || is(a.dx, {N, I})) && is(a.dw, {O, I}) && (!a.db || is(a.db, {O})), "dx {}, dw {}, db {}", to_string(a.dx),
        to_string(a.dw), to_string(a.db));
  const DType acc = acc_of(a.x.dtype);
  CHECK(a.dy.dtype == a.x.dtype && a.w.dtype == a.x.dtype && (!a.dx || a.dx.dtype == a.x.dtype), "dy {}, x {}, dx {}", to_string(a.dy),
        to_string(a.x), to_string(a.dx));
  CHECK(a.dw.dtype == acc && (!a.db || a.db.dtype == acc), "dw {}, db {}", to_string(a.dw), to_string(a.db));
  if (s.dry()) s.declare_workspace(cpu::workspace(a), 0);
  DISPATCH(s, linear_backward, a);
}

}  // namespace wyvern
