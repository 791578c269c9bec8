#include "trainer/evaluate.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce.h"

namespace wyvern {

EvalResult evaluate(Instance& m, TokenSource& source, int64_t windows, int64_t B, int64_t T, const std::vector<int32_t>& bytes_of_token,
                    const std::function<void(int64_t)>& progress) {
  EvalResult r;
  double total = 0;
  for (int64_t done = 0; done < windows;) {
    const int64_t b = std::min(B, windows - done);
    TokenBatch tokens = source.next(b);
    for (int32_t t : tokens.targets)
      if (t >= 0 && !bytes_of_token.empty()) r.bytes += bytes_of_token[size_t(t)];
    HostBatch host(b, T, std::move(tokens.tokens), std::move(tokens.targets));
    m.reset();
    Context c = m.context(host.batch(), Mode::eval);
    m.model.forward(c);
    sum(m.stream, {.out = &total, .x = m.model.token_loss()});
    r.tokens += host.valid_targets();
    done += b;
    if (progress) progress(done);
  }
  if (r.tokens) r.loss = total / double(r.tokens);
  if (r.bytes) r.bits_per_byte = total / std::log(2.0) / double(r.bytes);
  return r;
}

std::vector<int32_t> bytes_of_tokens(const Tokenizer& t) {
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < t.vocab_size(); id++) bytes.push_back(t.end_of_text() == id ? 0 : int32_t(t.decode({id}).size()));
  return bytes;
}

}  // namespace wyvern
