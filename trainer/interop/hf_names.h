// Hugging Face tensors and Wyvern parameters: which fills which, both ways. A Wyvern matrix is [out, in] with q|k|v and gate|up fused
// along dim 0, and its embedding is padded; GPT-2 files hold [in, out], Llama-like files hold the pieces apart, and nobody pads.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/params.h"

namespace wyvern {

struct TensorMap {
  std::string hf, own;            // "model.layers.0.self_attn.k_proj.weight", "layers.0.attn.qkv.weight"
  bool transposed = false;        // the HF tensor is [in, out]
  int64_t row_begin = 0, rows = 0;      // the rows of the own tensor's dim 0 that the HF tensor fills
};

// In the order of the forward pass. Reads config.json and the names in the weight files (GPT-2: with or without `transformer.`).
// A tied head has no entry; mask and frequency buffers have none.
std::vector<TensorMap> hf_tensor_maps(const std::string& folder);

// Fills every Param::value of the store, whatever its dtype and placement; padding rows become zero. Strict: every tensor that is
// missing, unexpected or of another shape, on either side, is listed in one Error(kCorrupt), and then nothing was written. A dry
// stream checks only.
void load_hf_values(const std::string& folder, ParamStore&, Stream&);

// The store's values (or gradients) under the names and in the shapes of the folder: transposed, cut apart, without padding.
// One call per tensor, in the order of hf_tensor_maps. Needs whole tensors: parallel.tp = 1.
void for_each_hf_view(const std::string& folder, const ParamStore&,
                      const std::function<void(const TensorMap&, const Shape& hf_shape, const std::vector<double>& values)>&,
                      bool gradients);

}  // namespace wyvern
