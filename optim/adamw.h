// One group of parameters under AdamW: moments and, for BF16 values, the f32 master are whole-tensor state named after the parameter.
#pragma once
#include "optim/optimizer.h"

namespace wyvern {

class AdamWGroup final : public Optimizer {
 public:
  AdamWGroup(Stream&, Arena&, const GroupConfig&, const Schedule&, std::vector<Param*>);
  void step(Stream&, const StepInfo&) override;
  void visit_state(const std::function<void(const std::string&, const Param&, Tensor)>&) override;
  void reset_masters(Stream&) override;

 private:
  struct Item { Param* param; Tensor m, v, master; };      // master absent: the value is its own
  GroupConfig config_;
  Schedule schedule_;
  std::vector<Item> items_;
};

}  // namespace wyvern
