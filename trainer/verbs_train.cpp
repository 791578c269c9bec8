// train, plan, gradcheck, config: the verbs that start from a YAML file.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/log.h"
#include "trainer/gradcheck.h"
#include "trainer/trainer.h"
#include "trainer/verbs.h"

namespace wyvern {
namespace {

// The one pass over a config: sections, layer kinds (a dry build), optimizer groups. All errors at once.
struct LoadedConfig { ConfigTree tree; RunConfig run; };

LoadedConfig load_config(const ConfigArgs& a) {
  LoadedConfig c{ConfigTree::load(a.config, a.overrides), {}};
  c.run = RunConfig::from(c.tree.root());
  Stream dry(true);
  const Mesh mesh = Mesh::single();
  Arena arena = Arena::counting();
  ParamStore params(arena, mesh, c.run.compute);
  if (!c.run.model.layers.empty()) Model(c.run.model, params, dry);
  else c.tree.root().map("model", "").error("layers", "a model needs at least one layer");
  c.tree.check();
  describe_groups(params, c.run.optim);       // every parameter in exactly one group
  return c;
}

nlohmann::ordered_json outcome_json(const TrainOutcome& o) {
  nlohmann::ordered_json j{{"step", o.step},
                           {"tokens", o.tokens},
                           {"loss", o.loss ? nlohmann::ordered_json(*o.loss) : nlohmann::ordered_json(nullptr)},
                           {"seconds", o.seconds},
                           {"checkpoint", o.checkpoint}};
  if (o.validation)
    j["validation"] = {{"loss", o.validation->loss},
                       {"perplexity", std::exp(o.validation->loss)},
                       {"bits_per_byte", o.validation->bits_per_byte},
                       {"tokens", o.validation->tokens}};
  if (!o.sample.empty()) j["sample"] = o.sample;
  j["stopped"] = o.exit_code == kStopped;
  return j;
}

}  // namespace

int verb_train(const TrainArgs& a) {
  const LoadedConfig c = load_config(a);
  RunFolder folder(c.run.run_dir + "/" + c.run.name);
  const auto start = folder.starting_point(a.resume);
  Trainer trainer(c.run, c.tree.resolved(), folder, start);
  folder.write_records(c.tree.resolved(), a.argv);
  const TrainOutcome o = trainer.run();
  if (a.json) fmt::print("{}\n", outcome_json(o).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else {
    fmt::print("{} after {}: step {}, {} tokens{}\n", o.exit_code == kStopped ? "stopped" : "finished", human_seconds(o.seconds), o.step,
               with_commas(o.tokens), o.loss ? fmt::format(", loss {:.4f}", *o.loss) : std::string());
    if (o.validation)
      fmt::print("validation loss {:.4f}, perplexity {:.2f}{}\n", o.validation->loss, std::exp(o.validation->loss),
                 o.validation->bytes ? fmt::format(", {:.4f} bits per byte", o.validation->bits_per_byte) : std::string());
    fmt::print("checkpoint {}\n", o.checkpoint);
  }
  return o.exit_code;
}

int verb_plan(const PlanArgs& a) {
  const LoadedConfig c = load_config(a);
  Plan p = make_plan(c.run);
  const bool fits = p.memory.total() <= p.available_bytes;
  if (!a.no_measure && fits) p.seconds_estimate = estimate_seconds(c.run, p);
  fmt::print("{}\n", a.json ? to_json(p) : to_table(p, c.run));
  if (!fits)
    fail(kEnvironment, "{} needs {} but {} are available here; lower train.micro_batch or set model.recompute: all", a.config,
         human_bytes(double(p.memory.total())), human_bytes(double(p.available_bytes)));
  return kDone;
}

int verb_gradcheck(const GradcheckArgs& a) {
  const ConfigTree full = load_config(a).tree;
  ConfigArgs reduced = a;
  for (const std::string& o : gradcheck_overrides(full)) reduced.overrides.push_back(o);
  const ConfigTree tree = ConfigTree::load(reduced.config, reduced.overrides);
  Progress progress("gradcheck");
  GradcheckOptions options{.entries = a.entries, .seed = a.seed};
  options.progress = [&](const GradcheckTensor& t, size_t done, size_t total) { progress.update(double(done), double(total), t.name); };
  const GradcheckResult r = gradcheck(tree, options);
  progress.clear();
  fmt::print("{}", a.json ? to_json(r) + "\n" : to_table(r));
  return r.passed ? kDone : kRuntime;
}

int verb_config_show(const ConfigShowArgs& a) {
  const ConfigTree tree = load_config(a).tree;
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"config", tree.resolved()}}.dump());
  else fmt::print("{}", a.docs ? tree.docs() : a.origin ? tree.resolved_with_origin() : tree.resolved());
  return kDone;
}

int verb_config_check(const ConfigArgs& a) {
  load_config(a);
  if (a.json) fmt::print("{}\n", nlohmann::ordered_json{{"config", a.config}, {"ok", true}}.dump());
  else fmt::print("{}: ok\n", a.config);
  return kDone;
}

}  // namespace wyvern
