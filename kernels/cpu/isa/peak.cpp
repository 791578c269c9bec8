#include "kernels/cpu/isa/peak.h"

#include <omp.h>

#include <algorithm>
#include <chrono>

#include "kernels/cpu/isa/peak_loops.h"
#include "kernels/cpu/isa/tier.h"

namespace wyvern::isa {
namespace {

double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double spin_plain(int64_t rounds) {                    // eight chains of scalar multiply and add
  volatile float factor = 0.999f;
  const float f = factor;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int64_t r = 0; r < rounds; r++)
    for (float& v : x) v = v * f + f;
  float sum = 0;
  for (float v : x) sum += v;
  factor = sum;
  return double(rounds) * 8 * 2;
}

using Spin = double (*)(int64_t rounds);
Spin loop_for(bool bf16) {
#ifdef __x86_64__
  switch (tier()) {
    case Tier::amx: return bf16 ? spin_amx : spin_avx512;
    case Tier::avx512: return spin_avx512;
    case Tier::avx2: return spin_avx2;
    case Tier::plain: break;
  }
#endif
  (void)bf16;
  return spin_plain;
}

// Every thread runs short slices until the time is up; its best slice counts, so that a thread which was set aside for a
// while does not pull the figure down.
double best_rate(Spin spin, double until) {
  int64_t rounds = 1000;
  double best = 0;
  while (true) {
    const double begin = seconds(), flops = spin(rounds), end = seconds();
    if (end - begin < 5e-4) rounds *= 2;
    else best = std::max(best, flops / (end - begin));
    if (end > until && best > 0) return best;
  }
}

}  // namespace

double measure_peak_flops(bool bf16) {
  const Spin spin = loop_for(bf16);
  double total = 0;
#pragma omp parallel reduction(+ : total)
  total += best_rate(spin, seconds() + 0.05);
  return total;
}

}  // namespace wyvern::isa
