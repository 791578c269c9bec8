#ifdef __AMX_BF16__
#include "kernels/cpu/isa/peak_loops.h"
#include "kernels/cpu/isa/tiles.inl"

namespace wyvern::isa {

double spin_amx(int64_t rounds) {
  alignas(64) static const char zeros[1024] = {};
  tile_configure();
  TILE_LOAD(4, zeros, kTileBytes);
  TILE_LOAD(5, zeros, kTileBytes);
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  for (int64_t r = 0; r < rounds; r++) {
    TILE_DOT(0, 4, 5);
    TILE_DOT(1, 4, 5);
    TILE_DOT(2, 4, 5);
    TILE_DOT(3, 4, 5);
  }
  tile_release();
  return static_cast<double>(rounds) * 4 * 2 * 16 * 16 * 32;
}

}  // namespace wyvern::isa
#endif
