#include "kernels/cpu/isa/tier.h"

#include <atomic>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "kernels/base/check.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace wyvern::isa {
namespace {

constexpr Tier kTiers[] = {Tier::plain, Tier::avx2, Tier::avx512, Tier::amx};

#ifdef __x86_64__

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);      // leaves zeros when the leaf does not exist
  return r;
}

// Which register files the operating system saves: 2 AVX, 5-7 AVX-512, 17 and 18 tiles. Legal only with OSXSAVE.
uint64_t xcr0() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

// Linux gives out the 8 KiB of tile state on request only, once per process and for all its later threads.
bool tiles_permitted() {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;            // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Tier detect() {
  const auto all = [](uint64_t word, std::initializer_list<int> bits) {
    for (int b : bits)
      if (!(word >> b & 1)) return false;
    return true;
  };
  const Registers basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  if (!all(basic.ecx, {12, 27, 28, 29})) return Tier::plain;             // fma, osxsave, avx, f16c
  const uint64_t saved = xcr0();
  if (!all(saved, {1, 2}) || !all(extended.ebx, {5})) return Tier::plain;                           // avx2
  if (!all(saved, {5, 6, 7}) || !all(extended.ebx, {16, 17, 30, 31})) return Tier::avx2;            // avx512 f, dq, bw, vl
  if (!all(saved, {17, 18}) || !all(extended.edx, {22, 24}) || !all(more.eax, {5})) return Tier::avx512;   // amx bf16, tile; avx512 bf16
  return tiles_permitted() ? Tier::amx : Tier::avx512;
}

#else

Tier detect() { return Tier::plain; }

#endif

Tier chosen() {
  const char* word = std::getenv("WYVERN_CPU_TIER");
  if (!word || !*word) return detected_tier();
  for (Tier t : kTiers) {
    if (std::string_view(word) != name_of(t)) continue;
    if (t > detected_tier())
      fail(kEnvironment, "WYVERN_CPU_TIER={}: this machine has no more than {}; choose that or a lower one (plain | avx2 | avx512 | amx)",
           word, name_of(detected_tier()));
    return t;
  }
  fail(kUsage, "WYVERN_CPU_TIER={} is not a tier; valid: plain | avx2 | avx512 | amx, or leave it unset for {}", word,
       name_of(detected_tier()));
}

std::atomic<Tier>& in_force() {
  static std::atomic<Tier> t = chosen();
  return t;
}

}  // namespace

Tier detected_tier() {
  static const Tier t = detect();
  return t;
}

Tier tier() { return in_force().load(std::memory_order_relaxed); }

void force_tier(Tier t) {
  if (t > detected_tier())
    fail(kEnvironment, "tier {} was asked for, but this machine has no more than {}", name_of(t), name_of(detected_tier()));
  in_force().store(t, std::memory_order_relaxed);
}

const char* name_of(Tier t) {
  switch (t) {
    case Tier::plain: return "plain";
    case Tier::avx2: return "avx2";
    case Tier::avx512: return "avx512";
    case Tier::amx: return "amx";
  }
  return "?";
}

}  // namespace wyvern::isa
