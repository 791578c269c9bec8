// Stream: an ordered queue on a device plus what kernels need to run there, so that no op takes a handle or a
// workspace. On the CPU a stream runs at once. A dry stream performs every check at the doors and runs no kernel:
// the memory planner, the shape checker and the preset tests are one and the same pass.
#pragma once
#include <algorithm>

#include "kernels/base/tensor.h"

namespace wyvern {

class Stream {
 public:
  explicit Stream(bool dry = false, Device device = {}) : dry_(dry), device_(device) {}
  bool dry() const { return dry_; }
  Device device() const { return device_; }

  // Said by the doors of a dry pass: what the kernels behind them keep allocated between calls, the most of each kind counts.
  void declare_workspace(int64_t matmul_bytes, int64_t attention_bytes) {
    matmul_bytes_ = std::max(matmul_bytes_, matmul_bytes);
    attention_bytes_ = std::max(attention_bytes_, attention_bytes);
  }
  int64_t declared_workspace() const { return matmul_bytes_ + attention_bytes_; }

 private:
  bool dry_;
  Device device_;
  int64_t matmul_bytes_ = 0, attention_bytes_ = 0;
};

// The last line of every door: nothing runs when dry; the CPU twin is the only one this build has.
#define DISPATCH(stream, op, args)      \
  do {                                  \
    if (!(stream).dry()) cpu::op((stream), (args)); \
  } while (0)

}  // namespace wyvern
