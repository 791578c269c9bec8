#include "kernels/cpu/isa/rows.inl"

namespace wyvern::isa {

constinit const RowKernels<float> kRowsPlainF32 = table<float>();
constinit const RowKernels<bf16> kRowsPlainBf16 = table<bf16>();

}  // namespace wyvern::isa
