#include "optim/optimizer.h"

#include <fnmatch.h>

#include <algorithm>

#include "optim/adamw.h"

namespace wyvern {
namespace {

GroupConfig read_group(const Node& n, int64_t steps) {
  GroupConfig g;
  const Node match = n.map("match", "which parameters: by role, by name, or both");
  for (const std::string& role : match.texts("role", std::vector<std::string>{}, "matrix, embedding, head, vector, expert")) {
    bool known = false;
    for (Role r : {Role::matrix, Role::embedding, Role::head, Role::vector, Role::expert})
      if (role == name_of(r)) { g.roles.push_back(r); known = true; }
    if (!known) match.error("role", fmt::format("unknown role '{}'; roles are matrix, embedding, head, vector, expert", role));
  }
  g.names = match.texts("name", std::vector<std::string>{}, "globs over parameter names, e.g. layers.*.attn.*");
  if (g.roles.empty() && g.names.empty()) n.error("match", "a group must match by role or by name");
  g.kind = n.choice("kind", {"adamw"}, {}, "update rule");
  g.lr = ScalarSchedule::from(n, "lr", {}, {0, 1e3}, "learning rate before optim.schedule", steps);
  const auto betas = n.numbers("betas", std::vector<double>{0.9, 0.95}, "decay of the first and second moment");
  if (betas.size() != 2 || betas[0] < 0 || betas[0] >= 1 || betas[1] < 0 || betas[1] >= 1) n.error("betas", "wants two numbers in [0, 1)");
  else { g.beta1.value = betas[0]; g.beta2.value = betas[1]; }
  g.eps = ScalarSchedule::from(n, "eps", 1e-8, {0, 1, true}, "added to the root of the second moment", steps);
  g.weight_decay = ScalarSchedule::from(n, "weight_decay", 0, {0, 1e3}, "decoupled: p shrinks by lr * weight_decay per step", steps);
  g.where = n.path();
  return g;
}

bool matches(const GroupConfig& g, const Param& p) {
  const bool role = g.roles.empty() || std::find(g.roles.begin(), g.roles.end(), p.role) != g.roles.end();
  const bool name = g.names.empty() || std::any_of(g.names.begin(), g.names.end(),
                                                   [&](const std::string& glob) { return fnmatch(glob.c_str(), p.name.c_str(), 0) == 0; });
  return role && name;
}

// The group of every parameter, in the store's order; exactly one each.
std::vector<size_t> assign(const ParamStore& params, const OptimConfig& c) {
  std::vector<size_t> group_of;
  std::string wrong;
  std::vector<int> hits(c.groups.size(), 0);
  for (const auto& p : params.all()) {
    std::vector<size_t> found;
    for (size_t g = 0; g < c.groups.size(); g++)
      if (matches(c.groups[g], *p)) found.push_back(g);
    if (found.size() == 1) hits[found[0]]++;
    else if (found.empty()) wrong += fmt::format("\n  {} (role {}) matches no group", p->name, name_of(p->role));
    else
      wrong +=
          fmt::format("\n  {} (role {}) matches {} and {}", p->name, name_of(p->role), c.groups[found[0]].where, c.groups[found[1]].where);
    group_of.push_back(found.empty() ? 0 : found[0]);
  }
  if (!wrong.empty()) fail(kUsage, "every parameter must fall into exactly one group of optim.groups:{}", wrong);
  for (size_t g = 0; g < hits.size(); g++)
    if (!hits[g]) fail(kUsage, "{} matches no parameter of this model; correct its match, or leave the group out", c.groups[g].where);
  return group_of;
}

class Groups final : public Optimizer {
 public:
  explicit Groups(std::vector<std::unique_ptr<Optimizer>> members) : members_(std::move(members)) {}
  void step(Stream& s, const StepInfo& i) override { for (auto& m : members_) m->step(s, i); }
  void visit_state(const std::function<void(const std::string&, const Param&, Tensor)>& f) override {
    for (auto& m : members_) m->visit_state(f);
  }
  void reset_masters(Stream& s) override { for (auto& m : members_) m->reset_masters(s); }

 private:
  std::vector<std::unique_ptr<Optimizer>> members_;
};

}  // namespace

OptimConfig OptimConfig::from(const Node& n, int64_t steps) {
  OptimConfig c;
  c.clip = n.number_or_none("clip", 1.0, {0, 1e9, true}, "largest global gradient norm; none = no clipping").value_or(0);
  c.schedule = Schedule::from(n, "schedule", steps);
  for (const Node& g : n.list("groups", "which parameters get which update rule")) c.groups.push_back(read_group(g, steps));
  return c;
}

std::unique_ptr<Optimizer> make_optimizer(Stream& s, Arena& arena, ParamStore& params, const OptimConfig& c) {
  const std::vector<size_t> group_of = assign(params, c);
  std::vector<std::unique_ptr<Optimizer>> members;
  for (size_t g = 0; g < c.groups.size(); g++) {
    std::vector<Param*> mine;
    for (size_t i = 0; i < group_of.size(); i++)
      if (group_of[i] == g) mine.push_back(params.all()[i].get());
    if (!mine.empty()) members.push_back(std::make_unique<AdamWGroup>(s, arena, c.groups[g], c.schedule, std::move(mine)));
  }
  return std::make_unique<Groups>(std::move(members));
}

std::string describe_groups(const ParamStore& params, const OptimConfig& c) {
  const std::vector<size_t> group_of = assign(params, c);
  std::string out;
  for (size_t g = 0; g < c.groups.size(); g++) {
    int64_t tensors = 0, elements = 0;
    for (size_t i = 0; i < group_of.size(); i++)
      if (group_of[i] == g) { tensors++; elements += params.all()[i]->count(); }
    const GroupConfig& k = c.groups[g];
    out += fmt::format("{}{}: {} tensors, {} parameters, lr {}, weight decay {}", g ? "\n" : "", k.kind, tensors, elements, k.lr.value,
                       k.weight_decay.value);
  }
  return out;
}

}  // namespace wyvern
