#include "kernels/elementwise.h"
#include "parallel/comm.h"

namespace wyvern {
namespace {

class SelfComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Stream&, Tensor, Reduce) override {}
  void all_gather(Stream& s, Tensor out, Tensor in) override { cast(s, {.y = out, .x = in}); }
};

}  // namespace

std::unique_ptr<Comm> self_comm() { return std::make_unique<SelfComm>(); }

}  // namespace wyvern
