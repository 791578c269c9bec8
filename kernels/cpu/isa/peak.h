// What this machine's arithmetic can do at this moment: the denominator of "% of peak". Measured, not looked up: clocks differ
// between machines of one kind, and neighbours on the same core take their part.
#pragma once

namespace wyvern::isa {

// FLOP/s of register-resident products over all OpenMP threads, in about 50 ms: the matrix unit for bf16 in tier amx,
// otherwise f32 fused multiply-adds of the tier in force (that is what a bf16 product runs on there).
double measure_peak_flops(bool bf16);

}  // namespace wyvern::isa
