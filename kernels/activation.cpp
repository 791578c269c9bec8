#include "kernels/activation.h"

namespace wyvern {

void gelu_forward(Stream& s, const GeluForward& a) {
  CHECK(shape_of(a.y) == shape_of(a.x) && a.y.dtype == a.x.dtype, "y {}, x {}", to_string(a.y), to_string(a.x));
  DISPATCH(s, gelu_forward, a);
}
void gelu_backward(Stream& s, const GeluBackward& a) {
  CHECK(shape_of(a.dx) == shape_of(a.x) && shape_of(a.dy) == shape_of(a.x) && a.dx.dtype == a.x.dtype && a.dy.dtype == a.x.dtype,
        "dx {}, dy {}, x {}", to_string(a.dx), to_string(a.dy), to_string(a.x));
  DISPATCH(s, gelu_backward, a);
}
void swiglu_forward(Stream& s, const SwigluForward& a) {
  CHECK(a.y.ndim == 2 && is(a.x, {a.y.dim[0], 2 * a.y.dim[1]}) && a.y.dtype == a.x.dtype, "y {}, x {}", to_string(a.y), to_string(a.x));
  DISPATCH(s, swiglu_forward, a);
}
void swiglu_backward(Stream& s, const SwigluBackward& a) {
  CHECK(a.dy.ndim == 2 && is(a.x, {a.dy.dim[0], 2 * a.dy.dim[1]}) && shape_of(a.dx) == shape_of(a.x), "dx {}, dy {}, x {}", to_string(a.dx),
        to_string(a.dy), to_string(a.x));
  CHECK(a.dx.dtype == a.x.dtype && a.dy.dtype == a.x.dtype, "dx {}, dy {}, x {}", to_string(a.dx), to_string(a.dy), to_string(a.x));
  DISPATCH(s, swiglu_backward, a);
}

}  // namespace wyvern
