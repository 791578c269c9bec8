// x0 = tokens[token] + positions[position], then dropout. The token table is cut over the vocabulary on tp.
#pragma once
#include "model/layer.h"

namespace wyvern {

struct Embedding {
  Param* tokens = nullptr;
  Param* positions = nullptr;    // null: no learned positions
  double dropout = 0;

  void forward(Context&, Tensor x0) const;
  void backward(Context&, Tensor dx0) const;       // dx0 is overwritten when dropout is on
};

}  // namespace wyvern
