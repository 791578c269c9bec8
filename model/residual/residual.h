// The mixer across depth: it owns the depth history. Every verb has its mirror, and walking the list of sublayers in reverse is
// the whole autodiff.
//   begin(x0)     allocates the history, before any sublayer's mark, so that no rewind can take it away
//   read(i)       the normed input of sublayer i (i = sublayers: the head). Adds what is pending exactly once; asked again
//                 (recompute) it only norms
//   output(i)     where sublayer i writes its y: a transient buffer, or the history itself
//   write(i, y)   y joins the history; lazy: the sum happens in the next read, in one pass with its norm
// Gradient buffers live in scratch at the level of the pass. write_backward returns a view of a live buffer: read-only.
#pragma once
#include <memory>

#include "model/layers/norm.h"

namespace wyvern {

class Residual {
 public:
  virtual ~Residual() = default;
  virtual void begin(Context&, Tensor x0) = 0;
  virtual Tensor begin_backward(Context&) = 0;
  virtual void read(Context&, int i, NormSlot*, Tensor out) = 0;             // null slot: no norm
  virtual void read_backward(Context&, int i, NormSlot*, Tensor dout) = 0;
  virtual Tensor output(Context&, int i) = 0;
  virtual void write(Context&, int i, Tensor y) = 0;
  virtual Tensor write_backward(Context&, int i) = 0;
  virtual Tensor stream(int i) const = 0;        // what read i saw before its norm; valid after a training forward (dump)
};

std::unique_ptr<Residual> make_sum_residual(int sublayers);

}  // namespace wyvern
