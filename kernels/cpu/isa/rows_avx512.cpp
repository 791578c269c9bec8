#include "kernels/cpu/isa/rows.inl"

namespace wyvern::isa {

constinit const RowKernels<float> kRowsAvx512F32 = table<float>();
constinit const RowKernels<bf16> kRowsAvx512Bf16 = table<bf16>();

}  // namespace wyvern::isa
