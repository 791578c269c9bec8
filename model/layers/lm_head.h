// LmHead: logits and loss, fused over chunks of tokens so that the full logits never exist. In training a chunk goes through
// logits -> loss -> dlogits (in place) -> dh, and the weight gradient accumulates there and then.
#pragma once
#include "model/layer.h"

namespace wyvern {

struct LmHead {
  Param* w = nullptr;        // (padded vocabulary, C); the embedding's when tied
  int64_t vocab = 0;         // real vocabulary
  double softcap = 0;

  // token_loss (N) acc_t written; in training dh (N, C) written and w->grad accumulated.
  void loss(Context&, Tensor token_loss, Tensor dh, Tensor h) const;
  void logits(Context&, Tensor out, Tensor h) const;            // out (N, local padded vocabulary), acc_t; capped
  int64_t chunk(int64_t N) const;                               // tokens per chunk
};

}  // namespace wyvern
