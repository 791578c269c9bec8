#include "optim/adamw.h"

#include "kernels/adamw.h"
#include "kernels/elementwise.h"

namespace wyvern {

AdamWGroup::AdamWGroup(Stream& s, Arena& arena, const GroupConfig& config, const Schedule& schedule, std::vector<Param*> params)
    : config_(config), schedule_(schedule) {
  for (Param* p : params) {
    const DType acc = p->grad.dtype;
    Item item{p, arena.alloc(acc, p->local_shape(), "adamw.m"), arena.alloc(acc, p->local_shape(), "adamw.v"), {}};
    if (p->value.dtype != acc) item.master = arena.alloc(acc, p->local_shape(), "adamw.master");
    zero(s, {.y = item.m});
    zero(s, {.y = item.v});
    items_.push_back(item);
  }
  reset_masters(s);
}

void AdamWGroup::reset_masters(Stream& s) {
  for (Item& i : items_)
    if (i.master) cast(s, {.y = i.master, .x = i.param->value});
}

void AdamWGroup::step(Stream& s, const StepInfo& info) {
  const double lr = config_.lr.at(info.step) * schedule_.at(info.step);
  for (Item& i : items_)
    adamw(s, {.value = i.param->value, .p = i.master ? i.master : i.param->value, .m = i.m, .v = i.v, .grad = i.param->grad, .lr = lr,
              .beta1 = config_.beta1.at(info.step), .beta2 = config_.beta2.at(info.step), .eps = config_.eps.at(info.step),
              .weight_decay = config_.weight_decay.at(info.step), .grad_scale = info.grad_scale, .t = info.step + 1});
}

void AdamWGroup::visit_state(const std::function<void(const std::string&, const Param&, Tensor)>& visit) {
  for (Item& i : items_) {
    visit("m", *i.param, i.m);
    visit("v", *i.param, i.v);
    if (i.master) visit("master", *i.param, i.master);
  }
}

}  // namespace wyvern
