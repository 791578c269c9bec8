// What a pass carries from layer to layer.
#pragma once
#include "kernels/base/arena.h"
#include "kernels/base/philox.h"
#include "parallel/mesh.h"

namespace wyvern {

enum class Mode : uint8_t { train, eval, decode };

struct Batch {                 // the geometry of one pass; row b * T + t of every (N, C) tensor, N = B * T
  int64_t B = 0, T = 0;
  int64_t first_sequence = 0;  // index of row 0's sequence within the global step: feeds the dropout counters
  double loss_scale = 1;       // 1 / valid tokens of the global step
  Tensor tokens, targets;      // (N) i32; a negative target is ignored
  Tensor positions;            // (N) i32, always present; position 0 starts a document: decode resets state on it
  Tensor doc_starts;           // (docs + 1) i32 row offsets, sequence starts included; absent in decode
  int64_t N() const { return B * T; }
};

struct Context {
  Stream& stream;
  Arena& saved;                // what forward leaves for backward
  Arena& scratch;              // what a pass needs for a moment
  const Mesh& mesh;
  const Batch& batch;
  Mode mode;
  RngKey rng;
};

}  // namespace wyvern
