#include "kernels/cpu/isa/rows.h"

#include "kernels/cpu/isa/tier.h"

namespace wyvern::isa {

template <> const RowKernels<float>& rows<float>() {
  switch (tier()) {
    case Tier::plain: return kRowsPlainF32;
    case Tier::avx2: return kRowsAvx2F32;
    case Tier::avx512:
    case Tier::amx: break;
  }
  return kRowsAvx512F32;
}
template <> const RowKernels<bf16>& rows<bf16>() {
  switch (tier()) {
    case Tier::plain: return kRowsPlainBf16;
    case Tier::avx2: return kRowsAvx2Bf16;
    case Tier::avx512:
    case Tier::amx: break;
  }
  return kRowsAvx512Bf16;
}

}  // namespace wyvern::isa
