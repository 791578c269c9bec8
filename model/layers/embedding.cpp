#include "model/layers/embedding.h"

#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace wyvern {
namespace {

void mask(Context& c, Tensor x, double p) {
  dropout(c.stream,
          {.y = x, .x = x, .p = p, .key = c.rng.key(Purpose::embedding), .T = c.batch.T, .first_sequence = c.batch.first_sequence});
}

}  // namespace

void Embedding::forward(Context& c, Tensor x0) const {
  const int64_t first_row = c.mesh.tp->rank() * tokens->value.dim[0];
  embedding_forward(c.stream, {.x = x0, .w = tokens->value, .index = c.batch.tokens, .first_row = first_row});
  c.mesh.tp->all_reduce(c.stream, x0);
  if (positions) embedding_forward(c.stream, {.x = x0, .w = positions->value, .index = c.batch.positions, .add = true});
  if (dropout > 0 && c.mode == Mode::train) mask(c, x0, dropout);
}

void Embedding::backward(Context& c, Tensor dx0) const {
  if (dropout > 0) mask(c, dx0, dropout);
  const int64_t first_row = c.mesh.tp->rank() * tokens->value.dim[0];
  embedding_backward(c.stream, {.dw = tokens->grad, .dx = dx0, .index = c.batch.tokens, .first_row = first_row});
  if (positions) embedding_backward(c.stream, {.dw = positions->grad, .dx = dx0, .index = c.batch.positions});
}

}  // namespace wyvern
