#include "kernels/cpu/isa/rows.inl"

namespace wyvern::isa {

constinit const RowKernels<float> kRowsAvx2F32 = table<float>();
constinit const RowKernels<bf16> kRowsAvx2Bf16 = table<bf16>();

}  // namespace wyvern::isa
