// Instance: a model with its memory. A dry build of the same code measures every arena first, so nothing is allocated before
// the size is known, and `plan` reports exactly what a run will use.
#pragma once
#include <memory>
#include <optional>

#include "model/host_batch.h"
#include "model/model.h"
#include "optim/optimizer.h"

namespace wyvern {

struct PassSize { int64_t B = 0, T = 0; Mode mode = Mode::train; };

struct MemoryPlan {          // bytes
  int64_t parameters = 0, gradients = 0, optimizer = 0, saved = 0, scratch = 0;
  int64_t workspace = 0;     // declared by the kernels: packing buffers and per-thread tiles
  int64_t total() const { return parameters + gradients + optimizer + saved + scratch + workspace; }
};

// Dry: builds the model and runs the passes without memory.
MemoryPlan plan_memory(const ModelConfig&, DType, const OptimConfig*, const std::vector<PassSize>& passes);

class Instance {
 public:
  // optim: null = no optimizer. passes: every geometry that will be run; arenas are sized for the largest.
  Instance(const ModelConfig&, DType, const OptimConfig* optim, const std::vector<PassSize>& passes);
  Instance(const Instance&) = delete;

  Context context(const Batch& batch, Mode mode, RngKey rng = {}) { return {stream, saved, scratch, mesh, batch, mode, rng}; }
  void reset() { saved.rewind(0); scratch.rewind(0); }      // before every pass

  // What was really used so far: the arenas' high water and the kernels' workspaces. `memory` is what was planned.
  int64_t peak_bytes() const;      // bytes

  Stream stream;
  Mesh mesh = Mesh::single();
  MemoryPlan memory;
  Arena param_arena, optim_arena, saved, scratch;
  ParamStore params;
  Model model;
  std::unique_ptr<Optimizer> optimizer;
};

int64_t available_memory();      // bytes this process may use: the smaller of MemAvailable and the cgroup's limit
int64_t resident_memory();       // bytes in use now (RSS)

}  // namespace wyvern
