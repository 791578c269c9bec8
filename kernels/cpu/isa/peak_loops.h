// The loops that peak.cpp times: `rounds` times a fixed number of independent products in registers; the FLOP they did.
#pragma once
#include <cstdint>

namespace wyvern::isa {

double spin_avx2(int64_t rounds);
double spin_avx512(int64_t rounds);
double spin_amx(int64_t rounds);

}  // namespace wyvern::isa
