// Model: embedding, a flat list of sublayers over a residual, head. backward is forward upside down.
#pragma once
#include <memory>
#include <vector>

#include "model/layers/embedding.h"
#include "model/layers/lm_head.h"
#include "model/model_config.h"
#include "model/sublayer.h"

namespace wyvern {

class Model {
 public:
  using Caches = std::vector<std::unique_ptr<Cache>>;

  // Adds every parameter to `params`, in the order of the forward pass. Errors in the layers' maps are collected in the config
  // tree: call ConfigTree::check() before the first pass.
  Model(const ModelConfig&, ParamStore& params, Stream&);

  // Sum of the tokens' losses times Batch::loss_scale. Mode::train also computes the head's gradients: backward must follow.
  double forward(Context&);
  void backward(Context&);
  // out (N, padded vocabulary) acc_t. With caches (Mode::decode) the batch's rows are the next tokens of each sequence.
  void logits(Context&, Tensor out, Caches* = nullptr);
  Caches make_caches(Stream&, Arena&, int64_t B, int64_t capacity) const;

  Tensor token_loss() const { return token_loss_; }        // (N) acc_t, of the last forward
  Tensor stream(int layer) const;                          // (N, C): input of layer l, or (l = layers) what the final norm reads
  const ModelConfig& config() const { return config_; }
  int64_t mixing_flops(int64_t T) const;                   // of one token's forward, all branches: what is not weights
  int sublayers() const { return int(sublayers_.size()); }

 private:
  void hidden(Context&, Caches*);

  ModelConfig config_;
  DType dtype_;
  Embedding embed_;
  std::vector<Sublayer> sublayers_;
  std::unique_ptr<Residual> residual_;
  NormSlot norm_;
  LmHead head_;
  Tensor h_, dh_, token_loss_;
  int64_t head_mark_ = 0;
};

}  // namespace wyvern
