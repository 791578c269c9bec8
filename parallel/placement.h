// How one parameter is cut over the mesh. From the placement follow its local shape, the map from local to global index
// (initialisation, checkpoints, re-sharding), the axes to reduce its gradient over, and "count once" in the norm.
#pragma once
#include <cstdint>

namespace wyvern {

enum class Place : uint8_t {
  replicated,     // value and gradient equal on every rank of the axis
  partial_grad,   // value replicated, gradient a partial SUM: what stands before the head split, and routers
  shard           // cut along `dim`, inside each of the parameter's blocks
};
struct Placement {
  Place tp = Place::replicated;
  int dim = 0;
};
inline Placement replicated() { return {}; }
inline Placement partial_grad() { return {Place::partial_grad, 0}; }
inline Placement shard(int dim) { return {Place::shard, dim}; }

}  // namespace wyvern
