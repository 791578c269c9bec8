// Reductions to a host double over fixed partitions: the same bits whatever the number of threads.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct SumSquares { double* out; Tensor x; };    // *out += sum x^2
struct Sum { double* out; Tensor x; };           // *out += sum x

void sum_squares(Stream&, const SumSquares&);
void sum(Stream&, const Sum&);
namespace cpu {
void sum_squares(Stream&, const SumSquares&);
void sum(Stream&, const Sum&);
}
}  // namespace wyvern
