// Optimizers. Groups are data: a YAML list matched by role or by name glob; every parameter falls into exactly one group.
// Any scalar of a group may have its own schedule; `optim.schedule` scales every group's lr.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/node.h"
#include "optim/schedule.h"
#include "parallel/params.h"

namespace wyvern {

struct GroupConfig {
  std::vector<Role> roles;             // match.role
  std::vector<std::string> names;      // match.name: globs
  std::string kind;                    // adamw
  ScalarSchedule lr, weight_decay, beta1, beta2, eps;
  std::string where;                   // file:line, for messages
};
struct OptimConfig {
  double clip = 0;                     // global gradient norm; 0 = none
  Schedule schedule;                   // factor on every group's lr
  std::vector<GroupConfig> groups;
  static OptimConfig from(const Node& optim, int64_t steps);
};

struct StepInfo {
  int64_t step = 0;                    // 0-based index of the step being taken; bias correction uses step + 1
  double grad_scale = 1;               // clipping factor
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(Stream&, const StepInfo&) = 0;
  // Every state tensor, local view: ("m", param, tensor). Names are the same on every layout; all exist from the start.
  virtual void visit_state(const std::function<void(const std::string& what, const Param&, Tensor)>&) = 0;
  // Called after values were loaded without state (an import): masters are taken from the values again.
  virtual void reset_masters(Stream&) = 0;
};

// State comes from `arena`. Error(kUsage) when a parameter matches no group, or a group matches nothing.
std::unique_ptr<Optimizer> make_optimizer(Stream&, Arena&, ParamStore&, const OptimConfig&);
// One line per group: which parameters, how many elements, and their settings.
std::string describe_groups(const ParamStore&, const OptimConfig&);

}  // namespace wyvern
