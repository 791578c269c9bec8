#include "kernels/attention.h"

namespace wyvern {
namespace {

void check_columns(const Columns& c, int64_t N, int64_t heads, int64_t D, DType dtype, const char* name) {
  CHECK(c.matrix.ndim == 2 && c.matrix.dim[0] == N && c.matrix.dtype == dtype, "{} {}", name, to_string(c.matrix));
  CHECK(c.offset >= 0 && c.offset + heads * D <= c.matrix.dim[1], "{}: {} heads of {} at column {} of {}", name, heads, D, c.offset,
        to_string(c.matrix));
}
template <class Args> void check_inputs(const Args& a, int64_t N, DType dtype) {
  check_columns(a.q, N, a.shape.H, a.shape.D, dtype, "q");
  check_columns(a.k, N, a.shape.Hkv, a.shape.D, dtype, "k");
  check_columns(a.v, N, a.shape.Hkv, a.shape.D, dtype, "v");
}
void check_shape(const AttentionShape& s) {
  CHECK(s.H > 0 && s.Hkv > 0 && s.H % s.Hkv == 0 && s.D > 0 && s.T > 0 && s.scale > 0, "H {}, Hkv {}, D {}, T {}, scale {}", s.H, s.Hkv,
        s.D, s.T, s.scale);
  CHECK(s.window >= 0 && s.softcap >= 0 && s.dropout >= 0 && s.dropout < 1, "window {}, softcap {}, dropout {}", s.window, s.softcap,
        s.dropout);
}

// What forward and backward share: N rows of whole sequences, cut into documents, with out and lse in the right types.
void check_rows(int64_t N, const AttentionShape& p, DType dtype, const Tensor& out, const Tensor& lse, const Tensor& doc_starts) {
  CHECK(N % p.T == 0, "{} rows of sequences of {}", N, p.T);
  CHECK(is(out, {N, p.H * p.D}) && out.dtype == dtype && is(lse, {N, p.H}) && lse.dtype == acc_of(dtype), "out {}, lse {}", to_string(out),
        to_string(lse));
  CHECK(doc_starts.ndim == 1 && doc_starts.dtype == DType::i32 && doc_starts.dim[0] >= 2, "doc_starts {}", to_string(doc_starts));
}

}  // namespace

void attention_forward(Stream& s, const AttentionForward& a) {
  const AttentionShape& p = a.shape;
  check_shape(p);
  const int64_t N = a.q.matrix.dim[0];
  const DType dtype = a.q.matrix.dtype;
  check_inputs(a, N, dtype);
  check_rows(N, p, dtype, a.out, a.lse, a.doc_starts);
  if (s.dry()) s.declare_workspace(0, cpu::attention_workspace(p, dtype, false));
  DISPATCH(s, attention_forward, a);
}

void attention_backward(Stream& s, const AttentionBackward& a) {
  const AttentionShape& p = a.shape;
  check_shape(p);
  const int64_t N = a.q.matrix.dim[0];
  const DType dtype = a.q.matrix.dtype;
  check_inputs(a, N, dtype);
  check_columns(a.dq, N, p.H, p.D, dtype, "dq");
  check_columns(a.dk, N, p.Hkv, p.D, dtype, "dk");
  check_columns(a.dv, N, p.Hkv, p.D, dtype, "dv");
  check_rows(N, p, dtype, a.out, a.lse, a.doc_starts);
  CHECK(is(a.dout, {N, p.H * p.D}) && a.dout.dtype == dtype, "out {}, dout {}", to_string(a.out), to_string(a.dout));
  if (s.dry()) s.declare_workspace(0, cpu::attention_workspace(p, dtype, true));
  DISPATCH(s, attention_backward, a);
}

void attention_decode(Stream& s, const AttentionDecode& a) {
  const AttentionShape& p = a.shape;
  check_shape(p);
  const int64_t N = a.q.matrix.dim[0], B = a.k_cache.dim[0], capacity = a.k_cache.dim[1];
  const DType dtype = a.q.matrix.dtype;
  check_inputs(a, N, dtype);
  CHECK(is(a.k_cache, {B, capacity, p.Hkv * p.D}) && is(a.v_cache, {B, capacity, p.Hkv * p.D}), "k_cache {}, v_cache {}",
        to_string(a.k_cache), to_string(a.v_cache));
  CHECK(a.k_cache.dtype == dtype && a.v_cache.dtype == dtype, "k_cache {}, v_cache {} for q {}", to_string(a.k_cache), to_string(a.v_cache),
        to_string(a.q.matrix));
  CHECK(is(a.length, {B}) && a.length.dtype == DType::i32 && N == B * p.T, "length {}, {} rows of T = {}", to_string(a.length), N, p.T);
  CHECK(a.positions.numel() == N && a.positions.dtype == DType::i32, "positions {}, {} rows", to_string(a.positions), N);
  CHECK(is(a.out, {N, p.H * p.D}) && a.out.dtype == dtype, "out {}, q {}", to_string(a.out), to_string(a.q.matrix));
  DISPATCH(s, attention_decode, a);
}

}  // namespace wyvern
