#include "kernels/adamw.h"

namespace wyvern {

void adamw(Stream& s, const AdamW& a) {
  const int64_t n = a.p.numel();
  const DType acc = a.p.dtype;
  CHECK((acc == DType::f32 || acc == DType::f64) && acc_of(a.value.dtype) == acc, "p {}, value {}", to_string(a.p), to_string(a.value));
  for (const Tensor& t : {a.m, a.v, a.grad}) CHECK(t.numel() == n && t.dtype == acc, "{} beside p {}", to_string(t), to_string(a.p));
  CHECK(a.value.numel() == n && a.t >= 1, "value {}, t {}", to_string(a.value), a.t);
  DISPATCH(s, adamw, a);
}

}  // namespace wyvern
