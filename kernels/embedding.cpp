#include "kernels/embedding.h"

namespace wyvern {

void embedding_forward(Stream& s, const EmbeddingForward& a) {
  CHECK(a.x.ndim == 2 && a.w.ndim == 2 && a.x.dim[1] == a.w.dim[1] && a.x.dtype == a.w.dtype, "x {}, w {}", to_string(a.x), to_string(a.w));
  CHECK(a.index.numel() == a.x.dim[0] && a.index.dtype == DType::i32, "index {}", to_string(a.index));
  DISPATCH(s, embedding_forward, a);
}
void embedding_backward(Stream& s, const EmbeddingBackward& a) {
  CHECK(a.dx.ndim == 2 && a.dw.ndim == 2 && a.dx.dim[1] == a.dw.dim[1] && a.dw.dtype == acc_of(a.dx.dtype), "dw {}, dx {}", to_string(a.dw),
        to_string(a.dx));
  CHECK(a.index.numel() == a.dx.dim[0] && a.index.dtype == DType::i32, "index {}", to_string(a.index));
  DISPATCH(s, embedding_backward, a);
}

}  // namespace wyvern
