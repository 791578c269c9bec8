#include "model/layers/lm_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"

namespace wyvern {

// About 64 Mi logits per chunk: large enough that packing the weight once per chunk is cheap, 128 MiB in BF16.
int64_t LmHead::chunk(int64_t N) const {
  const int64_t rows = (int64_t(1) << 26) / w->value.dim[0] / 64 * 64;
  return std::min(N, std::clamp<int64_t>(rows, 64, 4096));
}

void LmHead::loss(Context& c, Tensor token_loss, Tensor dh, Tensor h) const {
  const int64_t N = h.dim[0], V = w->value.dim[0], step = chunk(N), first = c.mesh.tp->rank() * V;
  const bool train = c.mode == Mode::train;
  const DType acc = acc_of(h.dtype);
  for (int64_t b = 0; b < N; b += step) {
    const int64_t e = std::min(b + step, N), n = e - b;
    Arena::Scope scope(c.scratch);
    Tensor logits = c.scratch.alloc(train ? h.dtype : acc, {n, V}, "head.logits");
    Tensor stats = c.scratch.alloc(acc, {n, 3}, "head.stats");
    Tensor all = c.scratch.alloc(acc, {n * c.mesh.tp->size(), 3}, "head.all_stats");
    const Tensor hs = rows(h, b, e), targets = rows(c.batch.targets, b, e);
    linear_forward(c.stream, {.y = logits, .x = hs, .w = w->value});
    cross_entropy_stats(c.stream,
                        {.stats = stats, .logits = logits, .targets = targets, .vocab = vocab, .first_column = first, .softcap = softcap});
    c.mesh.tp->all_gather(c.stream, all, stats);
    cross_entropy_gradient(c.stream, {.logits = logits,
                                      .token_loss = rows(token_loss, b, e),
                                      .all_stats = all,
                                      .targets = targets,
                                      .vocab = vocab,
                                      .first_column = first,
                                      .scale = c.batch.loss_scale,
                                      .softcap = softcap,
                                      .write_gradient = train});
    if (train) linear_backward(c.stream, {.dx = rows(dh, b, e), .dw = w->grad, .dy = logits, .x = hs, .w = w->value});
  }
  if (train) c.mesh.tp->all_reduce(c.stream, dh);      // each rank saw its slice of the vocabulary
}

void LmHead::logits(Context& c, Tensor out, Tensor h) const {
  linear_forward(c.stream, {.y = out, .x = h, .w = w->value});
  if (softcap <= 0) return;
  Arena::Scope scope(c.scratch);
  Tensor stats = c.scratch.alloc(out.dtype, {h.dim[0], 3}, "head.stats");
  cross_entropy_stats(c.stream, {.stats = stats, .logits = out, .targets = c.batch.targets, .vocab = vocab,
                                 .first_column = c.mesh.tp->rank() * w->value.dim[0], .softcap = softcap});
}

}  // namespace wyvern
