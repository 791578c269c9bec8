#include "kernels/cross_entropy.h"

namespace wyvern {

void cross_entropy_stats(Stream& s, const CrossEntropyStats& a) {
  const int64_t n = a.logits.dim[0];
  CHECK(a.logits.ndim == 2 && is(a.stats, {n, 3}) && a.stats.dtype == acc_of(a.logits.dtype), "stats {}, logits {}", to_string(a.stats),
        to_string(a.logits));
  CHECK(is(a.targets, {n}) && a.targets.dtype == DType::i32 && a.vocab > 0, "targets {}, vocab {}", to_string(a.targets), a.vocab);
  DISPATCH(s, cross_entropy_stats, a);
}
void cross_entropy_gradient(Stream& s, const CrossEntropyGradient& a) {
  const int64_t n = a.logits.dim[0];
  const DType acc = acc_of(a.logits.dtype);
  CHECK(a.logits.ndim == 2 && n > 0 && a.vocab > 0, "logits {}, vocab {}", to_string(a.logits), a.vocab);
  CHECK(a.all_stats.ndim == 2 && a.all_stats.dim[1] == 3 && a.all_stats.dim[0] % n == 0 && a.all_stats.dtype == acc,
        "all_stats {}, {} rows", to_string(a.all_stats), n);
  CHECK(is(a.token_loss, {n}) && a.token_loss.dtype == acc, "token_loss {}, logits {}", to_string(a.token_loss), to_string(a.logits));
  CHECK(is(a.targets, {n}) && a.targets.dtype == DType::i32, "targets {}, logits {}", to_string(a.targets), to_string(a.logits));
  DISPATCH(s, cross_entropy_gradient, a);
}

}  // namespace wyvern
