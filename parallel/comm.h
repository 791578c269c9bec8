// Communicators. A communicator of size 1 does nothing, so no layer asks whether parallelism is on. Ordered on the stream;
// dry: returns at the door. Reductions add in rank order on every rank, so that all ranks hold the same bits.
// SUM, never AVG: every loss is already divided by the global token count.
#pragma once
#include <memory>

#include "kernels/base/stream.h"

namespace wyvern {

enum class Reduce : uint8_t { sum, max };

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(Stream&, Tensor, Reduce = Reduce::sum) = 0;
  virtual void all_gather(Stream&, Tensor out, Tensor in) = 0;      // out = the ranks' `in`, one after another
};

std::unique_ptr<Comm> self_comm();      // one rank

}  // namespace wyvern
