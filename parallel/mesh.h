// Mesh: the named axes that ranks are laid out on. rank = dp * tp.size() + tp. One rank is a mesh of size-1 axes.
#pragma once
#include "parallel/comm.h"

namespace wyvern {

struct Mesh {
  std::unique_ptr<Comm> dp, tp;
  static Mesh single() { return {self_comm(), self_comm()}; }
};

}  // namespace wyvern
