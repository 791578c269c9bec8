// Small ops over whole tensors.
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

struct Zero { Tensor y; };                       // y = 0
struct Add  { Tensor y; Tensor a, b; };          // y = a + b; y may be a
struct Cast { Tensor y; Tensor x; };             // y = x in y's dtype, rounded to nearest even
// y = x * mask / (1 - p); mask from (key; global sequence, t, channel). y may be x. Its own backward.
struct Dropout { Tensor y; Tensor x; double p; uint64_t key; int64_t T, first_sequence; };   // (N, C)

void zero(Stream&, const Zero&);
void add(Stream&, const Add&);
void cast(Stream&, const Cast&);
void dropout(Stream&, const Dropout&);
namespace cpu {
void zero(Stream&, const Zero&);
void add(Stream&, const Add&);
void cast(Stream&, const Cast&);
void dropout(Stream&, const Dropout&);
}
}  // namespace wyvern
