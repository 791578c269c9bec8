// What this machine's CPU can run, found once: CPUID, XCR0 and the kernel's permission for AMX. WYVERN_CPU_TIER
// (plain | avx2 | avx512 | amx) forces a lower tier; asking for a higher one than the machine has is an error.
#pragma once
#include <cstdint>

namespace wyvern::isa {

enum class Tier : uint8_t { plain, avx2, avx512, amx };   // amx implies avx512 with bf16 conversion
Tier tier();                                              // the tier in force
Tier detected_tier();
const char* name_of(Tier);
void force_tier(Tier);                                    // tests and WYVERN_CPU_TIER

}  // namespace wyvern::isa
