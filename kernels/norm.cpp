#include "kernels/norm.h"

namespace wyvern {
namespace {

// The addressed columns lie inside the row, and parameters have one value per channel.
void check_geometry(const Tensor& x, const Tensor& w, int64_t groups, int64_t D, int64_t offset) {
  CHECK(x.ndim == 2 && groups >= 1 && D >= 1 && offset >= 0 && offset + groups * D <= x.dim[1], "x {}: {} groups of {} at column {}",
        to_string(x), groups, D, offset);
  CHECK(!w || (is(w, {D}) && (w.dtype == x.dtype || w.dtype == acc_of(x.dtype))), "w {} for x {}", to_string(w), to_string(x));
}

}  // namespace

void norm_forward(Stream& s, const NormForward& a) {
  NormForward p = a;
  if (p.D == 0) p.D = p.x.dim[1];
  const int64_t N = p.x.dim[0], W = p.x.dim[1];
  check_geometry(p.x, p.w, p.groups, p.D, p.offset);
  CHECK(is(p.out, {N, p.out.dim[1]}) && p.offset + p.groups * p.D <= p.out.dim[1] && p.out.dtype == p.x.dtype, "out {}, x {}",
        to_string(p.out), to_string(p.x));
  CHECK(is(p.rstd, {N, p.groups}) && p.rstd.dtype == acc_of(p.x.dtype), "rstd {}", to_string(p.rstd));
  CHECK(!p.mean || (is(p.mean, {N, p.groups}) && p.mean.dtype == p.rstd.dtype), "mean {}", to_string(p.mean));
  CHECK(bool(p.a) == bool(p.b_add) && (!p.a || (is(p.a, {N, W}) && is(p.b_add, {N, W}))), "a {}, b_add {}", to_string(p.a),
        to_string(p.b_add));
  CHECK(!p.a || (p.a.dtype == p.x.dtype && p.b_add.dtype == p.x.dtype), "a {}, b_add {}, x {}", to_string(p.a), to_string(p.b_add),
        to_string(p.x));
  CHECK(!p.b || (p.w && is(p.b, {p.D}) && p.b.dtype == p.w.dtype), "b {}", to_string(p.b));
  CHECK(!p.a || (p.groups == 1 && p.D == W), "add and norm need whole rows");
  DISPATCH(s, norm_forward, p);
}

void norm_backward(Stream& s, const NormBackward& a) {
  NormBackward p = a;
  if (p.D == 0) p.D = p.x.dim[1];
  const int64_t N = p.x.dim[0], W = p.x.dim[1];
  check_geometry(p.x, p.w, p.groups, p.D, p.offset);
  CHECK(is(p.dx, {N, W}) && is(p.dout, {N, p.dout.dim[1]}) && p.offset + p.groups * p.D <= p.dout.dim[1] && p.dx.dtype == p.x.dtype &&
            p.dout.dtype == p.x.dtype,
        "dx {}, dout {}, x {}", to_string(p.dx), to_string(p.dout), to_string(p.x));
  const DType acc = acc_of(p.x.dtype);
  CHECK(is(p.rstd, {N, p.groups}) && p.rstd.dtype == acc, "rstd {}", to_string(p.rstd));
  CHECK(!p.mean || (is(p.mean, {N, p.groups}) && p.mean.dtype == acc), "mean {}", to_string(p.mean));
  CHECK(bool(p.w) == bool(p.dw) && (!p.dw || (is(p.dw, {p.D}) && p.dw.dtype == acc)), "dw {}", to_string(p.dw));
  CHECK(!p.db || (p.mean && is(p.db, {p.D}) && p.db.dtype == acc), "db {}", to_string(p.db));
  DISPATCH(s, norm_backward, p);
}

}  // namespace wyvern
