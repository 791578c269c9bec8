// Workspaces: memory that kernels keep between calls (packed operands, tiles of each thread). They are declared at the doors of a
// dry pass, so that `plan` knows them, and counted here when they are really taken.
#pragma once
#include <cstdint>

namespace wyvern::isa {

int64_t workspace_in_use();                  // bytes, all kernels
void workspace_changed(int64_t by_bytes);    // said by the owner of a workspace

}  // namespace wyvern::isa
