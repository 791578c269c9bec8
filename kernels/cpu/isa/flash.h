// Flash attention for BF16 on the matrix unit (amx tier), behind kernels/cpu/attention.cpp. Same contract as
// kernels/attention.h. `supports` says whether this shape is handled here; otherwise the tiled loop runs.
#pragma once
#include "kernels/attention.h"

namespace wyvern::isa {

bool flash_supports(const AttentionShape&, DType);
void flash_forward(const AttentionForward&);
void flash_backward(const AttentionBackward&);
int64_t flash_workspace(const AttentionShape&, bool backward);      // bytes that stay allocated afterwards

}  // namespace wyvern::isa
