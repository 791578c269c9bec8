#include "trainer/instance.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "kernels/cpu/isa/workspace.h"

namespace wyvern {
namespace {

void dry_pass(Model& model, DType dtype, Stream& stream, const Mesh& mesh, const PassSize& size, MemoryPlan& plan) {
  Arena saved = Arena::counting(), scratch = Arena::counting();
  HostBatch host = HostBatch::dry(size.B, size.T);
  Context c{stream, saved, scratch, mesh, host.batch(), size.mode, {}};
  if (size.mode == Mode::decode) {
    auto caches = model.make_caches(stream, saved, size.B, model.config().context);
    model.logits(c, saved.alloc(acc_of(dtype), {size.B * size.T, model.config().padded_vocab}, "logits"), &caches);
  } else {
    model.forward(c);
    if (size.mode == Mode::train) model.backward(c);
  }
  plan.saved = std::max(plan.saved, saved.high_water());
  plan.scratch = std::max(plan.scratch, scratch.high_water());
}

bool poison() { const char* p = std::getenv("WYVERN_POISON"); return p && *p && *p != '0'; }

}  // namespace

MemoryPlan plan_memory(const ModelConfig& config, DType dtype, const OptimConfig* optim, const std::vector<PassSize>& passes) {
  Stream stream(true);
  const Mesh mesh = Mesh::single();
  Arena params_arena = Arena::counting(), optim_arena = Arena::counting();
  ParamStore params(params_arena, mesh, dtype);
  Model model(config, params, stream);
  MemoryPlan plan;
  for (const auto& p : params.all()) plan.gradients += (p->grad.bytes() + 63) / 64 * 64;
  plan.parameters = params_arena.high_water() - plan.gradients;
  if (optim) make_optimizer(stream, optim_arena, params, *optim);
  plan.optimizer = optim_arena.high_water();
  for (const PassSize& size : passes) dry_pass(model, dtype, stream, mesh, size, plan);
  plan.workspace = stream.declared_workspace();
  return plan;
}

Instance::Instance(const ModelConfig& config, DType dtype, const OptimConfig* optim, const std::vector<PassSize>& passes)
    : memory(plan_memory(config, dtype, optim, passes)),
      param_arena(memory.parameters + memory.gradients),
      optim_arena(memory.optimizer),
      saved(memory.saved, poison()),
      scratch(memory.scratch, poison()),
      params(param_arena, mesh, dtype),
      model(config, params, stream) {
  if (optim) optimizer = make_optimizer(stream, optim_arena, params, *optim);
}

int64_t Instance::peak_bytes() const {
  return param_arena.high_water() + optim_arena.high_water() + saved.high_water() + scratch.high_water() + isa::workspace_in_use();
}

int64_t available_memory() {
  int64_t available = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream info("/proc/meminfo");
  for (std::string key, unit; info >> key;) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && info >> kib) available = kib * 1024;
    std::getline(info, unit);
  }
  std::ifstream limit("/sys/fs/cgroup/memory.max"), current("/sys/fs/cgroup/memory.current");
  int64_t most = 0, used = 0;
  if (limit >> most && current >> used) available = std::min(available, std::max<int64_t>(0, most - used));
  return available;
}

int64_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace wyvern
