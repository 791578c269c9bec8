#include "trainer/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "kernels/base/philox.h"

namespace wyvern {
namespace {

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

// Logits of the last row of a decode pass over `tokens`, standing at `first`.
std::vector<double> next_logits(Instance& m, Model::Caches& caches, int64_t cache_mark, const std::vector<int32_t>& tokens, int64_t first) {
  const int64_t T = int64_t(tokens.size()), V = m.model.config().padded_vocab;
  HostBatch host = HostBatch::decode(1, T, tokens, first);
  m.saved.rewind(cache_mark);
  m.scratch.rewind(0);
  Context c = m.context(host.batch(), Mode::decode);
  Tensor out = m.saved.alloc(acc_of(m.params.dtype()), {T, V}, "logits");
  m.model.logits(c, out, &caches);
  std::vector<double> row(static_cast<size_t>(V));
  with_float(out.dtype, [&]<class A>(A) { for (int64_t v = 0; v < V; v++) row[size_t(v)] = double(as<A>(out)[(T - 1) * V + v]); });
  return row;
}

}  // namespace

int32_t sample_token(const double* logits, int64_t vocab, const SampleOptions& o, int64_t position) {
  const int32_t best = int32_t(std::max_element(logits, logits + vocab) - logits);
  if (o.temperature <= 0) return best;
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  size_t keep = o.top_k > 0 ? size_t(std::min(o.top_k, vocab)) : order.size();
  std::vector<double> p(keep);
  double total = 0;
  for (size_t i = 0; i < keep; i++) total += p[i] = std::exp((logits[order[i]] - logits[best]) / o.temperature);
  double mass = 0;
  for (size_t i = 0; i < keep; i++) {
    mass += p[i] / total;
    if (mass >= o.top_p) { keep = i + 1; break; }
  }
  const double kept = std::accumulate(p.begin(), p.begin() + int64_t(keep), 0.0);
  const auto words = philox(mix(uint64_t(0x73616d70), o.seed), uint32_t(position), 0, 0, 0);
  double u = uniform(words[0], words[1]) * kept;
  for (size_t i = 0; i < keep; i++)
    if ((u -= p[i]) <= 0) return order[i];
  return order[keep - 1];
}

std::vector<PassSize> generation_passes(int64_t prompt_tokens) { return {{1, prompt_tokens, Mode::decode}, {1, 1, Mode::decode}}; }

Generation generate(Instance& m, const std::vector<int32_t>& prompt, const SampleOptions& o, const std::function<void(int32_t)>& on_token) {
  CHECK(!prompt.empty(), "a prompt has at least one token");
  const ModelConfig& config = m.model.config();
  Generation g;
  m.reset();
  Model::Caches caches = m.model.make_caches(m.stream, m.saved, 1, config.context);
  const int64_t mark = m.saved.mark();
  auto start = std::chrono::steady_clock::now();
  std::vector<double> logits = next_logits(m, caches, mark, prompt, 0);
  g.prefill_tokens_per_s = double(prompt.size()) / seconds_since(start);
  start = std::chrono::steady_clock::now();
  int64_t position = int64_t(prompt.size()), passes = 0;
  while (int64_t(g.tokens.size()) < o.tokens) {
    const int32_t token = sample_token(logits.data(), config.vocab_size, o, position);
    if (o.stop == token) break;
    g.tokens.push_back(token);
    if (on_token) on_token(token);
    if (int64_t(g.tokens.size()) == o.tokens) break;
    if (position == config.context) { g.context_full = true; break; }
    logits = next_logits(m, caches, mark, {token}, position++);
    passes++;
  }
  if (passes) g.decode_tokens_per_s = double(passes) / seconds_since(start);
  return g;
}

}  // namespace wyvern
