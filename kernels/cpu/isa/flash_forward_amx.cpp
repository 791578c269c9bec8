// Flash attention forward on the matrix unit: online softmax over blocks of keys (arXiv 2205.14135), 32 query rows at a time.
// A work item is one head of one document. Scores and probabilities of a block live in L1, the packed keys and values of
// the document in L2; probabilities enter P V as bf16, their row sum is taken in f32.
#ifdef __AMX_BF16__
#include "kernels/cpu/isa/flash_tiles.inl"

namespace wyvern::isa {
namespace {

constexpr int64_t kQueries = 32;        // rows of a block
constexpr int64_t kKeys = 256;          // keys of a block: 32 KiB of scores
constexpr float kMasked = -1e30f;       // finite, so that differences stay finite; exp2 makes it 0

struct Item {
  int64_t row0, rows, padded;           // the document: its first row, its length, the same rounded up to 32
  int64_t head;
};
struct Buffers {
  uint16_t *keys, *values;              // B tiles: [key / 16][d / 32] and [d / 16][key / 32]
  uint16_t *queries, *probs;            // A tiles: [2][d / 32] and [key / 32][2]
  float *scores, *sums;                 // (32, kKeys) and (32, Dp)
  float *max, *total;                   // (32)
};

int64_t carve(const FlashProblem& p, char* base, Buffers* b) {
  Carver c{base};
  const int64_t Lp = round_up(p.longest, 32), Dp = round_up(p.D, 32);
  b->keys = c.take<uint16_t>(Lp * Dp);
  b->values = c.take<uint16_t>(Lp * Dp);
  b->queries = c.take<uint16_t>(kQueries * Dp);
  b->probs = c.take<uint16_t>(kQueries * kKeys);
  b->scores = c.take<float>(kQueries * kKeys);
  b->sums = c.take<float>(kQueries * Dp);
  b->max = c.take<float>(kQueries);
  b->total = c.take<float>(kQueries);
  return c.used;
}

// Columns outside [begin, end) of a row of n scores are not allowed.
void mask_row(float* s, int64_t begin, int64_t end, int64_t n) {
  const __m512 masked = _mm512_set1_ps(kMasked);
  for (int64_t j = 0; j < begin && j < n; j += 16) _mm512_mask_storeu_ps(s + j, lanes(0, begin - j), masked);
  for (int64_t j = max_of(0, end) / 16 * 16; j < n; j += 16) _mm512_mask_storeu_ps(s + j, lanes(end - j, 16), masked);
}

// s = cap * tanh(scale * s / cap) over whole rows.
void cap_scores(float* s, int64_t n, float scale, float cap) {
  const __m512 in = _mm512_set1_ps(scale / cap), out = _mm512_set1_ps(cap);
  for (int64_t r = 0; r < kQueries; r++)
    for (int64_t j = 0; j < n; j += 16) {
      float* x = s + r * kKeys + j;
      _mm512_store_ps(x, _mm512_mul_ps(out, tanh_of(_mm512_mul_ps(in, _mm512_load_ps(x)))));
    }
}

// One row of the online softmax: probs (bf16, A tiles), the running maximum and total. Returns the factor for what was
// accumulated under the old maximum. `scale` takes scores to powers of two.
[[gnu::always_inline]] inline float softmax_row(const float* s, uint16_t* probs, int64_t n, float scale, float* max, float* total) {
  __m512 m0 = _mm512_load_ps(s), m1 = _mm512_load_ps(s + 16);
  for (int64_t j = 32; j < n; j += 32) {
    m0 = _mm512_max_ps(m0, _mm512_load_ps(s + j));
    m1 = _mm512_max_ps(m1, _mm512_load_ps(s + j + 16));
  }
  const float before = *max, here = _mm512_reduce_max_ps(_mm512_max_ps(m0, m1)), after = here > before ? here : before;
  const __m512 factor = _mm512_set1_ps(scale), shift = _mm512_set1_ps(after * scale);
  __m512 t0 = _mm512_setzero_ps(), t1 = t0;
  for (int64_t j = 0; j < n; j += 32) {
    const __m512 a = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(s + j), factor, shift));
    const __m512 b = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(s + j + 16), factor, shift));
    t0 = _mm512_add_ps(t0, a);
    t1 = _mm512_add_ps(t1, b);
    _mm512_store_si512(probs + j / 32 * 2 * kTile, to_bf16(a, b));
  }
  float rescale = 1;
  if (after > before) rescale = _mm512_cvtss_f32(exp2_of(_mm512_set1_ps((before - after) * scale)));
  *max = after;
  *total = *total * rescale + _mm512_reduce_add_ps(_mm512_add_ps(t0, t1));
  return rescale;
}

// Bits of 16 spread to every fourth bit of 64.
uint64_t every_fourth(uint64_t x) {
  x = (x | x << 24) & 0x000000ff000000ffull;
  x = (x | x << 12) & 0x000f000f000f000full;
  x = (x | x << 6) & 0x0303030303030303ull;
  return (x | x << 3) & 0x1111111111111111ull;
}
// Bit l: key 4 * group + l of query row i survives.
uint64_t keep_64(const FlashProblem& p, uint32_t sequence, uint32_t head, int64_t i, int64_t group) {
  __m512i words[4];
  philox_16(p.key, _mm512_set1_epi32(int32_t(sequence)), _mm512_set1_epi32(int32_t(head)), _mm512_set1_epi32(int32_t(i)),
            _mm512_add_epi32(_mm512_set1_epi32(int32_t(group)), lane_numbers()), words);
  uint64_t keep = 0;
  for (int w = 0; w < 4; w++) keep |= every_fourth(_mm512_cmpge_epu32_mask(words[w], _mm512_set1_epi32(int32_t(p.drop_below)))) << w;
  return keep;
}
// Clears the dropped probabilities of a block whose first key is key0 and first query is i0 (positions in the sequence).
void drop_probs(const FlashProblem& p, const Item& item, uint16_t* probs, int64_t i0, int64_t key0, int64_t n) {
  const auto sequence = uint32_t(p.first_sequence + item.row0 / p.T), head = uint32_t(p.first_head + item.head);
  const int64_t skip = key0 % 4, words = (skip + n + 63) / 64;
  for (int64_t r = 0; r < kQueries; r++) {
    uint64_t keep[kKeys / 64 + 2] = {};
    for (int64_t w = 0; w < words; w++) keep[w] = keep_64(p, sequence, head, i0 + r, key0 / 4 + 16 * w);
    for (int64_t j = 0; j < n; j += 32) {
      const int64_t bit = skip + j, word = bit / 64, shift = bit % 64;
      const uint64_t bits = shift ? keep[word] >> shift | keep[word + 1] << (64 - shift) : keep[word];
      uint16_t* at = probs + j / 32 * 2 * kTile + r * 32;
      _mm512_store_si512(at, _mm512_maskz_mov_epi16(__mmask32(bits), _mm512_load_si512(at)));
    }
  }
}

// Rows r of out = sums / total, and lse.
void write_rows(const FlashProblem& p, const Item& item, const Buffers& b, int64_t q0, float to_natural) {
  const int64_t Dp = round_up(p.D, 32), count = min_of(kQueries, item.rows - q0);
  for (int64_t r = 0; r < count; r++) {
    const int64_t n = item.row0 + q0 + r;
    p.lse[n * p.H + item.head] = b.max[r] * to_natural + __builtin_logf(b.total[r]);
    const __m512 factor = _mm512_set1_ps(p.keep / b.total[r]);
    uint16_t* out = p.out.data + n * p.out.stride + item.head * p.D;
    for (int64_t d = 0; d < p.D; d += 32) {
      const float* sums = b.sums + r * Dp + d;
      store_row(out + d, to_bf16(_mm512_mul_ps(factor, _mm512_load_ps(sums)), _mm512_mul_ps(factor, _mm512_load_ps(sums + 16))), p.D - d);
    }
  }
}

// S = Q K^T for keys [k0, k0 + n) of the document.
void block_scores(const Buffers& b, int64_t steps, int64_t k0, int64_t n) {
  for (int64_t j = 0; j < n; j += 32) {
    const uint16_t* keys = b.keys + (k0 + j) / 16 * steps * kTile;
    multiply_2x2(steps, b.queries, b.queries + steps * kTile, kTile, keys, keys + steps * kTile, kTile, b.scores + j, kKeys * 4, false);
  }
}
// O = or += P V.
void block_values(const Buffers& b, int64_t Dp, int64_t padded, int64_t k0, int64_t n, bool accumulate) {
  const int64_t column = padded / 32 * kTile;            // from one 16-column strip of V to the next
  for (int64_t d = 0; d < Dp; d += 32) {
    const uint16_t* v = b.values + d / 16 * column + k0 / 32 * kTile;
    multiply_2x2(n / 32, b.probs, b.probs + kTile, 2 * kTile, v, v + column, kTile, b.sums + d, Dp * 4, accumulate);
  }
}

void query_block(const FlashProblem& p, const Item& item, const Source& q, const Buffers& b, int64_t q0) {
  const int64_t Dp = round_up(p.D, 32), steps = Dp / 32, window = p.window ? p.window : item.padded + kQueries;
  const float natural = p.softcap > 0 ? 1.0f : p.scale, scale = natural * kLog2e;      // scores to logits, to powers of two
  pack_a(b.queries, q, q0);
  prefetch_rows(q, q0 + kQueries);
  for (int64_t r = 0; r < kQueries; r++) b.max[r] = kMasked, b.total[r] = 0;
  // The first block holds at least one allowed key of every row: the window of row q0 + 31 starts at most 31 keys after
  // that of row q0, which starts at most 31 keys into the block.
  const int64_t begin = max_of(0, q0 - window + 1) / 32 * 32, end = q0 + kQueries;
  for (int64_t k0 = begin; k0 < end; k0 += kKeys) {
    const int64_t n = min_of(kKeys, end - k0);
    block_scores(b, steps, k0, n);
    if (p.softcap > 0) cap_scores(b.scores, n, p.scale, p.softcap);
    const bool edge = k0 + n > q0 + 1 || k0 < q0 + kQueries - window;
    for (int64_t r = 0; r < kQueries; r++) {
      float* s = b.scores + r * kKeys;
      if (edge) mask_row(s, q0 + r - window + 1 - k0, q0 + r + 1 - k0, n);
      const float rescale = softmax_row(s, b.probs + r * 32, n, scale, b.max + r, b.total + r);
      if (k0 > begin && rescale != 1) {
        float* o = b.sums + r * Dp;
        for (int64_t d = 0; d < Dp; d += 16) _mm512_store_ps(o + d, _mm512_mul_ps(_mm512_set1_ps(rescale), _mm512_load_ps(o + d)));
      }
    }
    if (p.drop_below) drop_probs(p, item, b.probs, item.row0 % p.T + q0, item.row0 % p.T + k0, n);
    block_values(b, Dp, item.padded, k0, n, k0 > begin);
  }
  write_rows(p, item, b, q0, natural);
}

void forward_item(const FlashProblem& p, const Item& item, const Buffers& b) {
  const int64_t kv_head = item.head / (p.H / p.Hkv), Dp = round_up(p.D, 32), column = item.padded / 32 * kTile;
  const Source k = source(p.k, item.row0, item.rows, kv_head, p.D), v = source(p.v, item.row0, item.rows, kv_head, p.D);
  const Source q = source(p.q, item.row0, item.rows, item.head, p.D);
  for (int64_t t = 0; t < item.padded; t += 32) {
    prefetch_rows(k, t + 32);
    prefetch_rows(v, t + 32);
    pack_b_transposed(b.keys + t * Dp, k, t);
    pack_b(b.values + t / 32 * kTile, column, v, t);
  }
  for (int64_t q0 = 0; q0 < item.rows; q0 += kQueries) query_block(p, item, q, b, q0);
}

}  // namespace

int64_t flash_forward_scratch(const FlashProblem& p) {
  Buffers unused;
  return carve(p, nullptr, &unused);
}

void flash_forward_amx(const FlashProblem& p) {
#pragma omp parallel num_threads(p.threads)
  {
    Buffers b;
    carve(p, p.scratch[omp_get_thread_num()], &b);
    tile_configure();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < p.docs * p.H; i++) {
      const int64_t row0 = p.doc_starts[i / p.H], rows = p.doc_starts[i / p.H + 1] - row0;
      forward_item(p, {row0, rows, round_up(rows, 32), i % p.H}, b);
    }
    tile_release();
    store_fence();
  }
}

}  // namespace wyvern::isa
#endif
