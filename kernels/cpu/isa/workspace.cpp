#include "kernels/cpu/isa/workspace.h"

#include <atomic>

namespace wyvern::isa {
namespace {
std::atomic<int64_t> in_use{0};
}

int64_t workspace_in_use() { return in_use.load(); }
void workspace_changed(int64_t by_bytes) { in_use += by_bytes; }

}  // namespace wyvern::isa
