// Linear: y = x w^T + b. Column: the outputs are cut over tp. Row: the inputs are cut, y is a partial sum, and the bias is
// added by tp rank 0 alone.
#pragma once
#include "model/layer.h"

namespace wyvern {

struct Linear {
  Param* w = nullptr;
  Param* b = nullptr;          // null without bias
  bool row = false;

  struct Saved { Tensor x; };
  void forward(Context&, Saved&, Tensor y, Tensor x) const;
  void backward(Context&, const Saved&, Tensor dx, Tensor dy) const;
  int64_t outputs() const { return w->value.dim[0]; }      // local
};

// blocks: rows of the fused pieces (q|k|v, gate|up); empty = one piece.
Linear column_linear(const LayerSpec&, const std::string& name, int64_t in, int64_t out, bool bias, std::vector<int64_t> blocks = {});
Linear row_linear(const LayerSpec&, const std::string& name, int64_t in, int64_t out, bool bias);

}  // namespace wyvern
