// Philox4x32-10 (Salmon et al. 2011): a counter-based generator. Values depend on (key, counter) alone, so they do not
// depend on layout, micro-batching, recompute, thread count or order.
//   initialisation: key = (seed, parameter name), counter = global index
//   dropout:        key = (seed, step, sublayer, purpose), counter = (global sequence, ...): see RngKey
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace wyvern {

inline std::array<uint32_t, 4> philox(uint64_t key, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
    a = uint32_t(q >> 32) ^ b ^ k0;
    c = uint32_t(p >> 32) ^ d ^ k1;
    b = uint32_t(q);
    d = uint32_t(p);
  }
  return {a, b, c, d};
}
// A double in (0, 1) from two words. 52 bits: with 53 the half that keeps it off zero would round the largest up to one.
inline double uniform(uint32_t hi, uint32_t lo) { return (double((uint64_t(hi) << 20) ^ (lo >> 12)) + 0.5) * 0x1p-52; }

inline uint64_t mix(uint64_t h, uint64_t v) {  // splitmix64 step: hashes the words of a key together
  uint64_t z = h + 0x9E3779B97F4A7C15ull * (v + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
inline uint64_t mix(uint64_t h, std::string_view s) {
  for (char c : s) h = mix(h, uint64_t(uint8_t(c)));
  return h;
}

enum class Purpose : uint8_t { embedding, residual, attention };

struct RngKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  int sublayer = -1;     // -1: the embedding
  uint64_t key(Purpose p) const { return mix(mix(mix(mix(uint64_t(0), seed), step), uint64_t(sublayer + 1)), uint64_t(p)); }
};

// Dropout by counter: one Philox call serves four neighbouring channels. An element is dropped when its word < threshold.
inline uint32_t drop_threshold(double p) { return uint32_t(p * 4294967296.0); }

}  // namespace wyvern
