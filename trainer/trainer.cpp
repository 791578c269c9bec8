#include "trainer/trainer.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/log.h"
#include "kernels/cpu/isa/peak.h"
#include "trainer/generate.h"

namespace wyvern {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
constexpr double kLiveLineOnly = 1e18;      // off a terminal the log lines are the progress

}  // namespace

Trainer::Trainer(const RunConfig& config, std::string resolved, RunFolder& folder, std::optional<std::string> start)
    : config_(config),
      resolved_(std::move(resolved)),
      folder_(folder),
      stop_(folder.stop_file(), config.train.time_limit),
      progress_("train", kLiveLineOnly) {
  if (config_.train.threads > 0) omp_set_num_threads(config_.train.threads);
  plan_ = make_plan(config_);
  if (plan_.memory.total() > plan_.available_bytes)
    fail(kEnvironment, "this run needs {} but {} are available; lower train.micro_batch, set model.recompute: all, or see `wyvern plan`",
         human_bytes(double(plan_.memory.total())), human_bytes(double(plan_.available_bytes)));
  open_data();
  model_ = std::make_unique<Instance>(config_.model, config_.compute, &config_.optim, training_passes(config_));
  check_checkpoint_room(folder_.checkpoints(), model_->params, model_->optimizer.get());
  if (start) resume(*start);
  else {
    model_->params.initialise(model_->stream, config_.seed);
    model_->optimizer->reset_masters(model_->stream);
  }
  metrics_ = std::make_unique<MetricsFile>(folder_.metrics(), start ? step_ : -1);
  if (metrics_->moved_aside())
    log_info("{} metrics lines beyond step {} were moved to {}.after-step-{}", metrics_->moved_aside(), step_, folder_.metrics(), step_);
  if (const int64_t moved = start ? folder_.set_aside_after(step_) : 0)
    log_info("{} checkpoints beyond step {} were moved to {}.after-step-{}", moved, step_, folder_.checkpoints(), step_);
  if (start) metrics_->write("resume", step_, {{"checkpoint", *start}});
  peak_flops_ = isa::measure_peak_flops(config_.compute == DType::bf16);
  log_info("{}: {} parameters, {}, {} threads, {} peak memory; {}", config_.name, with_commas(plan_.total), name_of(config_.compute),
           omp_get_max_threads(), human_bytes(double(plan_.memory.total())), train_->describe());
  log_info("{}", describe_groups(model_->params, config_.optim));
}

void Trainer::open_data() {
  if (!config_.data.tokenizer.empty()) {
    tokenizer_ = load_tokenizer(config_.data.tokenizer);
    if (tokenizer_->vocab_size() > config_.model.vocab_size)
      fail(kUsage, "data.tokenizer {} has {} ids but model.vocab_size is {}; set model.vocab_size={}", tokenizer_->id(),
           tokenizer_->vocab_size(), config_.model.vocab_size, tokenizer_->vocab_size());
    bytes_of_token_ = bytes_of_tokens(*tokenizer_);
    bytes_of_token_.resize(size_t(config_.model.vocab_size), 0);
  }
  if (!config_.data.synthetic.empty()) {
    train_ = make_synthetic(config_.data.synthetic, config_.train.sequence, config_.seed, config_.model.vocab_size);
    return;
  }
  TokenStore store = TokenStore::open(config_.data.train);
  if (tokenizer_) store.require_tokenizer(tokenizer_->id());
  train_ = make_loader(std::move(store), config_.train.sequence, config_.data.order, config_.seed, config_.model.vocab_size);
  if (config_.data.val.empty() || !config_.train.validate_every) return;
  val_store_ = TokenStore::open(config_.data.val);
  if (tokenizer_) val_store_->require_tokenizer(tokenizer_->id());
  val_ = make_eval_windows(*val_store_, config_.train.sequence, config_.model.vocab_size);
  val_start_ = val_->state();
}

void Trainer::resume(const std::string& checkpoint) {
  const CheckpointMeta meta = read_checkpoint_meta(checkpoint);
  for (const std::string& change : check_same_run(meta.config, resolved_, checkpoint))
    log_warning("resuming with a changed config, {}", change);
  load_checkpoint(checkpoint, model_->params, model_->optimizer.get(), model_->stream, false);
  step_ = meta.step;
  tokens_ = meta.tokens;
  last_saved_ = step_;
  const auto j = nlohmann::json::parse(meta.train_state, nullptr, false);
  if (j.is_discarded() || !j.contains("loader"))
    fail(kCorrupt, "{}: the training state is damaged, or this checkpoint was not written by training", checkpoint);
  const auto& l = j["loader"];
  train_->restore({l["seed"], l["epoch"], l["position"], l["fingerprint"]});
  loss_stats_.restore(j["loss_stats"].get<std::string>());
  norm_stats_.restore(j["norm_stats"].get<std::string>());
  if (step_ > config_.train.steps)
    fail(kUsage, "{} is at step {} but train.steps = {}; nothing is left to do", checkpoint, step_, config_.train.steps);
  const LoaderState s = train_->state();
  log_info("resumed from {}: step {}, {} tokens, data at epoch {}, sequence {}", checkpoint, step_, with_commas(tokens_), s.epoch,
           s.position);
}

double Trainer::accumulate(const TokenBatch& tokens, double loss_scale, bool& stopped) {
  const int64_t T = config_.train.sequence, B = config_.train.micro_batch, count = config_.train.batch / B;
  const RngKey rng{config_.seed, uint64_t(step_), -1};
  double loss = 0;
  for (int64_t m = 0; m < count && !stopped; m++) {
    const auto from = [&](const std::vector<int32_t>& v) {
      return std::vector<int32_t>(v.begin() + m * B * T, v.begin() + (m + 1) * B * T);
    };
    HostBatch host(B, T, from(tokens.tokens), from(tokens.targets));
    host.batch().first_sequence = m * B;
    host.batch().loss_scale = loss_scale;
    model_->reset();
    Context c = model_->context(host.batch(), Mode::train, rng);
    loss += model_->model.forward(c);
    model_->model.backward(c);
    show_progress(m + 1, count);
    if (m + 1 < count) stopped = !stop_.reason().empty();
  }
  return loss;
}

void Trainer::show_progress(int64_t pass, int64_t passes) {
  if (!progress_.live()) return;
  const int64_t tokens = config_.train.batch * config_.train.sequence;
  std::string recent;
  if (smooth_seconds_ > 0) recent = fmt::format(" | loss {:.4f} | {} tok/s", last_loss_, human_count(double(tokens) / smooth_seconds_));
  progress_.update(double(step_) + double(pass) / double(passes), double(config_.train.steps),
                   fmt::format("step {}/{}, pass {}/{}{} |", step_ + 1, config_.train.steps, pass, passes, recent));
}

bool Trainer::step(StepResult& r) {
  const LoaderState before = train_->state();
  const TokenBatch tokens = train_->next(config_.train.batch);
  r.tokens = int64_t(tokens.tokens.size());
  const int64_t valid = std::count_if(tokens.targets.begin(), tokens.targets.end(), [](int32_t t) { return t >= 0; });
  Stream& s = model_->stream;
  model_->params.zero_grad(s);
  bool stopped = false;
  r.loss = accumulate(tokens, valid ? 1.0 / double(valid) : 0, stopped);
  if (stopped) {
    train_->restore(before);
    return false;
  }
  model_->params.sync_grad(s);
  r.norm = model_->params.grad_norm(s);
  if (!std::isfinite(r.loss) || !std::isfinite(r.norm)) {
    metrics_->write("spike", step_ + 1, {{"loss", r.loss}, {"grad_norm", r.norm}});
    fail(kDiverged,
         "step {}: loss {} and gradient norm {} are not finite; nothing was changed. The latest checkpoint is {}. Lower the learning rate, "
         "or resume from an earlier step",
         step_ + 1, r.loss, r.norm, last_saved_ >= 0 ? checkpoint_path(folder_.checkpoints(), last_saved_) : std::string("(none)"));
  }
  r.loss_z = loss_stats_.update(r.loss);
  r.norm_z = norm_stats_.update(r.norm);
  r.skipped = !valid || (config_.train.skip_zscore > 0 && std::max(r.loss_z, r.norm_z) > config_.train.skip_zscore);
  if (!valid) log_warning("step {}: no target in this batch counts; the update is skipped", step_ + 1);
  else if (r.skipped)
    log_warning("step {}: loss z {:.2f}, gradient norm z {:.2f} exceed guard.skip_zscore {}; the update is skipped", step_ + 1, r.loss_z,
                r.norm_z, config_.train.skip_zscore);
  if (!r.skipped) {
    const double clip = config_.optim.clip;
    model_->optimizer->step(s, {.step = step_, .grad_scale = clip > 0 ? std::min(1.0, clip / (r.norm + 1e-6)) : 1.0});
    model_->params.touch();
  }
  step_++;
  tokens_ += r.tokens;
  return true;
}

void Trainer::log_step(const StepResult& r, double seconds) {
  const auto& group = config_.optim.groups.front();
  const double lr = group.lr.at(step_ - 1) * config_.optim.schedule.at(step_ - 1);
  const double rate = double(r.tokens) / seconds, flops = rate * double(plan_.flops.total());
  const int64_t rss = resident_memory();
  last_loss_ = r.loss;
  smooth_seconds_ = smooth_seconds_ > 0 ? 0.95 * smooth_seconds_ + 0.05 * seconds : seconds;
  if (r.skipped || std::max(std::abs(r.loss_z), std::abs(r.norm_z)) > 5)
    metrics_->write(
        "spike", step_,
        {{"loss", r.loss}, {"loss_z", r.loss_z}, {"grad_norm", r.norm}, {"grad_norm_z", r.norm_z}, {"skipped", int64_t(r.skipped)}});
  metrics_->write("train", step_,
                  {{"tokens", tokens_},
                   {"loss", r.loss},
                   {"loss_z", r.loss_z},
                   {"grad_norm", r.norm},
                   {"lr", lr},
                   {"step_ms", seconds * 1e3},
                   {"tokens_per_s", rate},
                   {"flops_per_s", flops},
                   {"peak_bytes", model_->peak_bytes()},
                   {"rss_bytes", rss}});
  if (step_ % config_.train.log_every && step_ != config_.train.steps && step_ != 1) return;
  progress_.clear();
  log_info(
      "step {:>6}/{} | {:>8} tok | loss {:7.4f} (z {:+5.2f}) | norm {:7.4f} | lr {:.2e} | {:7.1f} ms | {:>7} tok/s | {} {:4.1f} % | {} | "
      "ETA {}",
      step_, config_.train.steps, human_count(double(tokens_)), r.loss, r.loss_z, r.norm, lr, seconds * 1e3, human_count(rate),
      human_flops(flops), 100 * flops / peak_flops_, human_bytes(double(rss)),
      human_seconds(smooth_seconds_ * double(config_.train.steps - step_)));
}

EvalResult Trainer::validate() {
  val_->restore(val_start_);
  const int64_t all = val_->sequences_per_epoch(), B = config_.train.micro_batch;
  const int64_t windows = config_.train.validate_batches ? std::min(all, config_.train.validate_batches * B) : all;
  const EvalResult r = evaluate(*model_, *val_, windows, B, config_.train.sequence, bytes_of_token_);
  metrics_->write("validate", step_, {{"tokens", tokens_}, {"val_loss", r.loss}, {"bits_per_byte", r.bits_per_byte}});
  progress_.clear();
  log_info("step {:>6} | validation loss {:.4f} | perplexity {:.2f}{} | {} tokens", step_, r.loss, std::exp(r.loss),
           r.bytes ? fmt::format(" | {:.4f} bits per byte", r.bits_per_byte) : std::string(), with_commas(r.tokens));
  return r;
}

std::string Trainer::sample_text() {
  std::vector<int32_t> prompt;
  if (tokenizer_ && !config_.train.sample_prompt.empty()) prompt = tokenizer_->encode(config_.train.sample_prompt);
  if (prompt.empty()) prompt = {tokenizer_ && tokenizer_->end_of_text() ? *tokenizer_->end_of_text() : 0};
  const int64_t room = std::min<int64_t>(config_.model.context, 64);
  if (int64_t(prompt.size()) > room) prompt.erase(prompt.begin(), prompt.end() - room);
  SampleOptions o{.tokens = config_.train.sample_tokens, .temperature = 0.8, .top_k = 50, .seed = config_.seed + uint64_t(step_)};
  if (tokenizer_) o.stop = tokenizer_->end_of_text();
  const Generation g = generate(*model_, prompt, o);
  const std::string text = tokenizer_ ? tokenizer_->decode(g.tokens) : fmt::format("{}", fmt::join(g.tokens, " "));
  nlohmann::ordered_json j{{"step", step_}, {"prompt", config_.train.sample_prompt}, {"text", text}, {"tokens", g.tokens}};
  std::ofstream(folder_.samples(), std::ios::app) << j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  metrics_->write("sample", step_, {{"text", text}});
  return text;
}

std::string Trainer::save() {
  const LoaderState s = train_->state();
  nlohmann::ordered_json j{{"loader", {{"seed", s.seed}, {"epoch", s.epoch}, {"position", s.position}, {"fingerprint", s.fingerprint}}},
                           {"loss_stats", loss_stats_.save()}, {"norm_stats", norm_stats_.save()}};
  const CheckpointMeta meta{.step = step_, .tokens = tokens_, .compute = name_of(config_.compute), .config = resolved_,
                            .tokenizer = tokenizer_ ? tokenizer_->save() : "", .train_state = j.dump()};
  const auto start = Clock::now();
  const std::string path = save_checkpoint(folder_.checkpoints(), meta, model_->params, model_->optimizer.get(), model_->stream);
  prune_checkpoints(folder_.checkpoints(), config_.train.checkpoint_keep, config_.train.checkpoint_milestone);
  last_saved_ = step_;
  metrics_->write("checkpoint", step_, {{"path", path}, {"seconds", seconds_since(start)}});
  progress_.clear();
  log_info("step {:>6} | saved {} in {:.1f} s", step_, path, seconds_since(start));
  return path;
}

void Trainer::after_step() {
  const TrainConfig& t = config_.train;
  const bool last = step_ == t.steps;
  if (val_ && (last || step_ % t.validate_every == 0)) last_validation_ = validate();
  if (t.sample_every && (last || step_ % t.sample_every == 0)) {
    last_sample_ = sample_text();
    progress_.clear();
    log_info("step {:>6} | sample: {}", step_, last_sample_);
  }
  if (last || (t.checkpoint_every && step_ % t.checkpoint_every == 0)) save();
}

TrainOutcome Trainer::run() {
  const auto start = Clock::now();
  TrainOutcome out;
  StepResult r;
  if (step_ == config_.train.steps)
    log_info("{} is finished: {} of {} steps; raise train.steps to go on", folder_.path(), step_, config_.train.steps);
  while (step_ < config_.train.steps) {
    std::string reason = stop_.reason();
    const auto begin = Clock::now();
    if (reason.empty() && step(r = {})) {
      out.loss = r.loss;
      log_step(r, seconds_since(begin));
      after_step();
      continue;
    }
    reason = stop_.reason();
    progress_.clear();
    metrics_->write("signal", step_, {{"reason", reason}});
    if (last_saved_ != step_) save();
    stop_.consumed();
    log_info("stopped on {} at step {}; go on with --resume auto", reason, step_);
    out.exit_code = kStopped;
    break;
  }
  progress_.clear();
  out.step = step_;
  out.tokens = tokens_;
  out.validation = last_validation_;
  out.sample = last_sample_;
  out.checkpoint = last_saved_ >= 0 ? checkpoint_path(folder_.checkpoints(), last_saved_) : "";
  out.seconds = seconds_since(start);
  return out;
}

}  // namespace wyvern
