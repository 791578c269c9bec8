// Stream: an ordered queue on a device plus what kernels need to run there, so that no op takes a handle or a
// workspace. On the CPU a stream runs at once. A dry stream performs every check at the doors and runs no kernel:
// the memory planner, the shape checker and the preset tests are one and the same pass.
#pragma once
#include "kernels/base/tensor.h"

namespace wyvern {

class Stream {
 public:
  explicit Stream(bool dry = false, Device device = {}) : dry_(dry), device_(device) {}
  bool dry() const { return dry_; }
  Device device() const { return device_; }

 private:
  bool dry_;
  Device device_;
};

// The last line of every door: nothing runs when dry; the CPU twin is the only one this build has.
#define DISPATCH(stream, op, args)      \
  do {                                  \
    if (!(stream).dry()) cpu::op((stream), (args)); \
  } while (0)

}  // namespace wyvern
