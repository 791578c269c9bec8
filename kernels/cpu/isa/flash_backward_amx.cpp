// Flash attention backward on the matrix unit. A work item is one key/value head of one document with all the query heads
// that share it, so every gradient has one writer and one fixed order of additions.
//
// Blocks of 64 keys x 64 queries hold everything transposed, S^T = K Q^T and dP^T = V dO^T, because then P^T and dS^T come out
// of the vector code as A tiles (dV += P^T dO, dK += dS^T Q), and dQ^T += K^T dS^T needs no more than an interleave of two rows.
// P is recomputed from lse; dS = P (dP - delta), delta = rowsum(dO * O) (arXiv 2205.14135); scale is applied at the end.
#ifdef __AMX_BF16__
#include "kernels/cpu/isa/flash_amx.h"
#include "kernels/cpu/isa/flash_tiles.inl"

namespace wyvern::isa {
namespace {

constexpr int64_t kBlock = 64;            // keys and queries of a block
constexpr int64_t kStrips = kBlock / 16;
constexpr float kNoRow = 1e30f;           // lse of padding rows: P = 0

struct Item {
  int64_t row0, rows, padded;             // the document: its first row, its length, the same rounded up to kBlock
  int64_t kv_head;
};
struct Buffers {
  uint16_t *k_rows, *v_rows, *k_columns;             // A tiles: [key / 16][d / 32] twice, [d / 16][key / 32]
  uint16_t *q_columns, *dout_columns;                // B tiles: [q / 16][d / 32]
  uint16_t *q_rows, *dout_rows;                      // B tiles: [d / 16][q / 32]
  float *lse, *delta;                                // (padded)  lse in powers of two
  float *dk, *dv;                                    // (padded, Dp)
  float* dq;                                         // (padded / 32, Dp, 32): transposed within 32 queries
  float *scores, *dprobs;                            // (64 keys, 64 queries)
  uint16_t *probs, *dscores;                         // A tiles: [key / 16][q / 32]
  uint16_t* dscores_pairs;                           // B tiles: [q / 16][key / 32]
  uint16_t* keep;                                    // (4 strips, 64 + 4 keys) dropout masks of 16 queries
};
constexpr int64_t kKeepRows = kBlock + 4;            // keys of a strip's masks: the first group of four may start early

int64_t carve(const FlashProblem& p, char* base, Buffers* b) {
  Carver c{base};
  const int64_t Lp = round_up(p.longest, kBlock), Dp = round_up(p.D, 32);
  b->k_rows = c.take<uint16_t>(Lp * Dp);
  b->v_rows = c.take<uint16_t>(Lp * Dp);
  b->k_columns = c.take<uint16_t>(Lp * Dp);
  b->q_columns = c.take<uint16_t>(Lp * Dp);
  b->dout_columns = c.take<uint16_t>(Lp * Dp);
  b->q_rows = c.take<uint16_t>(Lp * Dp);
  b->dout_rows = c.take<uint16_t>(Lp * Dp);
  b->lse = c.take<float>(Lp);
  b->delta = c.take<float>(Lp);
  b->dk = c.take<float>(Lp * Dp);
  b->dv = c.take<float>(Lp * Dp);
  b->dq = c.take<float>(Lp * Dp);
  b->scores = c.take<float>(kBlock * kBlock);
  b->dprobs = c.take<float>(kBlock * kBlock);
  b->probs = c.take<uint16_t>(kBlock * kBlock);
  b->dscores = c.take<uint16_t>(kBlock * kBlock);
  b->dscores_pairs = c.take<uint16_t>(kBlock * kBlock);
  b->keep = c.take<uint16_t>(kStrips * kKeepRows);
  return c.used;
}

void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) _mm512_store_ps(x + i, _mm512_setzero_ps());
}

// lse (to powers of two) and delta of one head's rows.
void row_statistics(const FlashProblem& p, const Item& item, int64_t head, const Buffers& b) {
  for (int64_t i = 0; i < item.padded; i++) {
    b.lse[i] = kNoRow;
    b.delta[i] = 0;
    if (i >= item.rows) continue;
    const int64_t n = item.row0 + i;
    const uint16_t* out = p.out.data + n * p.out.stride + head * p.D;
    const uint16_t* dout = p.dout.data + n * p.dout.stride + head * p.D;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t d = 0; d < p.D; d += 32)
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(load_row(out, 0, 0, 1, d, p.D)), reinterpret_cast<__m512bh>(load_row(dout, 0, 0, 1, d, p.D)));
    b.delta[i] = _mm512_reduce_add_ps(sum);
    b.lse[i] = p.lse[n * p.H + head] * kLog2e;
  }
}

// S^T and dP^T of the block; tiles without an allowed pair are left alone, the vector code never looks at them unmasked.
void block_scores(const Buffers& b, int64_t steps, int64_t k0, int64_t q0, int64_t window) {
  for (int64_t i = 0; i < kBlock; i += 32)
    for (int64_t j = 0; j < kBlock; j += 32) {
      if (q0 + j + 31 < k0 + i || q0 + j - (k0 + i + 31) >= window) continue;
      const int64_t a = (k0 + i) / 16 * steps * kTile, c = (q0 + j) / 16 * steps * kTile, next = steps * kTile, at = i * kBlock + j;
      multiply_2x2(steps, b.k_rows + a, b.k_rows + a + next, kTile, b.q_columns + c, b.q_columns + c + next, kTile, b.scores + at, kBlock * 4, false);
      multiply_2x2(steps, b.v_rows + a, b.v_rows + a + next, kTile, b.dout_columns + c, b.dout_columns + c + next, kTile, b.dprobs + at, kBlock * 4, false);
    }
}

// Which of the block's pairs survive dropout. `first_key`: position of key 0 of the block in the sequence.
void block_keep(const FlashProblem& p, const Item& item, int64_t head, const Buffers& b, int64_t first_key, int64_t first_query) {
  const auto sequence = uint32_t(p.first_sequence + item.row0 / p.T), global_head = uint32_t(p.first_head + head);
  for (int64_t strip = 0; strip < kStrips; strip++)
    for (int64_t group = 0; group * 4 < first_key % 4 + kBlock; group++)
      keep_masks(p, sequence, global_head, first_query + 16 * strip, first_key / 4 + group, b.keep + strip * kKeepRows + group * 4);
}

struct Pair {
  __m512 probs, dscores;                  // what goes into dV and into dK, dQ
};
// 16 queries of one key. kOptions: softcap or dropout.
template <bool kOptions>
[[gnu::always_inline]] inline Pair pair_of(const FlashProblem& p, const float* scores, const float* dprobs, __m512 lse, __m512 delta, __m512 scale,
                                           __mmask16 allowed, __mmask16 keep) {
  const __m512 s = _mm512_load_ps(scores);
  if constexpr (!kOptions) {
    const __m512 probs = _mm512_maskz_mov_ps(allowed, exp2_of(_mm512_fmsub_ps(s, scale, lse)));
    return {probs, _mm512_maskz_mul_ps(allowed, probs, _mm512_sub_ps(_mm512_load_ps(dprobs), delta))};
  }
  __m512 logit = _mm512_mul_ps(s, scale), slope = _mm512_set1_ps(1.0f);
  if (p.softcap > 0) {
    const __m512 t = tanh_of(_mm512_mul_ps(s, _mm512_set1_ps(p.scale / p.softcap)));
    logit = _mm512_mul_ps(t, _mm512_set1_ps(p.softcap * kLog2e));
    slope = _mm512_fnmadd_ps(t, t, slope);
  }
  const __m512 probs = exp2_of(_mm512_sub_ps(logit, lse));
  const __m512 dprob = _mm512_sub_ps(_mm512_maskz_mul_ps(keep, _mm512_load_ps(dprobs), _mm512_set1_ps(p.keep)), delta);
  return {_mm512_maskz_mov_ps(allowed & keep, probs), _mm512_maskz_mul_ps(allowed, _mm512_mul_ps(probs, slope), dprob)};
}

// scores, dprobs -> probs, dscores, dscores_pairs. Two keys x 32 queries at a time.
template <bool kOptions>
void block_gradient(const FlashProblem& p, const Buffers& b, int64_t k0, int64_t q0, int64_t window, int64_t keep_skip) {
  const __m512 scale = _mm512_set1_ps(p.scale * kLog2e);
  const __m512i interleave = interleave_index();
  const bool edge = k0 + kBlock > q0 + 1 || q0 + kBlock - k0 > window;
  for (int64_t j = 0; j < kBlock; j += 32) {
    const __m512 lse[2] = {_mm512_load_ps(b.lse + q0 + j), _mm512_load_ps(b.lse + q0 + j + 16)};
    const __m512 delta[2] = {_mm512_load_ps(b.delta + q0 + j), _mm512_load_ps(b.delta + q0 + j + 16)};
    for (int64_t i = 0; i < kBlock; i += 2) {
      Pair pair[2][2];                    // [key][16 queries]
      for (int64_t u = 0; u < 2; u++) {
        for (int64_t h = 0; h < 2; h++) {
          const int64_t key = i + u, query = j + 16 * h, apart = (k0 + key) - (q0 + query);
          const __mmask16 allowed = edge ? lanes(apart, apart + window) : __mmask16(0xffff);
          const __mmask16 keep = kOptions && p.drop_below ? b.keep[query / 16 * kKeepRows + keep_skip + key] : __mmask16(0xffff);
          pair[u][h] = pair_of<kOptions>(p, b.scores + key * kBlock + query, b.dprobs + key * kBlock + query, lse[h], delta[h], scale, allowed, keep);
        }
        const int64_t at = ((i + u) / 16 * (kBlock / 32) + j / 32) * kTile + (i + u) % 16 * 32;
        _mm512_store_si512(b.probs + at, to_bf16(pair[u][0].probs, pair[u][1].probs));
        _mm512_store_si512(b.dscores + at, to_bf16(pair[u][0].dscores, pair[u][1].dscores));
      }
      for (int64_t h = 0; h < 2; h++) {
        const int64_t at = ((j / 16 + h) * (kBlock / 32) + i / 32) * kTile + i % 32 / 2 * 32;
        _mm512_store_si512(b.dscores_pairs + at, _mm512_permutexvar_epi16(interleave, to_bf16(pair[0][h].dscores, pair[1][h].dscores)));
      }
    }
  }
}

// dV += P^T dO, dK += dS^T Q, dQ^T += K^T dS^T.
void block_products(const Buffers& b, int64_t Dp, int64_t padded, int64_t k0, int64_t q0) {
  constexpr int64_t kSteps = kBlock / 32, kNext = kSteps * kTile;
  const int64_t column = padded / 32 * kTile;          // from one 16-column strip to the next
  for (int64_t d = 0; d < Dp; d += 32) {
    const int64_t at = d / 16 * column;
    const uint16_t *dout = b.dout_rows + at + q0 / 32 * kTile, *q = b.q_rows + at + q0 / 32 * kTile, *k = b.k_columns + at + k0 / 32 * kTile;
    for (int64_t i = 0; i < kBlock; i += 32) {
      const uint16_t *probs = b.probs + i / 16 * kNext, *dscores = b.dscores + i / 16 * kNext;
      multiply_2x2(kSteps, probs, probs + kNext, kTile, dout, dout + column, kTile, b.dv + (k0 + i) * Dp + d, Dp * 4, true);
      multiply_2x2(kSteps, dscores, dscores + kNext, kTile, q, q + column, kTile, b.dk + (k0 + i) * Dp + d, Dp * 4, true);
    }
    for (int64_t j = 0; j < kBlock; j += 32) {
      const uint16_t* pairs = b.dscores_pairs + j / 16 * kNext;
      multiply_2x2(kSteps, k, k + column, kTile, pairs, pairs + kNext, kTile, b.dq + ((q0 + j) / 32 * Dp + d) * 32, 128, true);
    }
  }
}

// dst rows = src rows * factor, for dk and dv.
void write_rows(const FlashProblem& p, const Item& item, const FlashColumns<uint16_t>& dst, const float* src, float factor) {
  const int64_t Dp = round_up(p.D, 32);
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < item.rows; i++) {
    uint16_t* row = dst.data + (item.row0 + i) * dst.stride + item.kv_head * p.D;
    for (int64_t d = 0; d < p.D; d += 32) {
      const float* s = src + i * Dp + d;
      _mm512_mask_storeu_epi16(row + d, d + 32 <= p.D ? 0xffffffffu : 0xffffu, to_bf16(_mm512_mul_ps(f, _mm512_load_ps(s)), _mm512_mul_ps(f, _mm512_load_ps(s + 16))));
    }
  }
}
void write_dq(const FlashProblem& p, const Item& item, int64_t head, const Buffers& b) {
  const int64_t Dp = round_up(p.D, 32);
  const __m512 f = _mm512_set1_ps(p.scale);
  for (int64_t t = 0; t < item.rows; t += 16)
    for (int64_t d = 0; d < p.D; d += 32) {
      __m512i low[16], high[16];
      const float* src = b.dq + (t / 32 * Dp + d) * 32 + t % 32;
      for (int64_t i = 0; i < 16; i++) low[i] = _mm512_load_si512(src + i * 32), high[i] = _mm512_load_si512(src + (16 + i) * 32);
      transpose_16x16(low);
      transpose_16x16(high);
      for (int64_t i = 0; i < 16 && t + i < item.rows; i++) {
        uint16_t* row = p.dq.data + (item.row0 + t + i) * p.dq.stride + head * p.D + d;
        const __m512 a = _mm512_mul_ps(f, _mm512_castsi512_ps(low[i])), c = _mm512_mul_ps(f, _mm512_castsi512_ps(high[i]));
        _mm512_mask_storeu_epi16(row, d + 32 <= p.D ? 0xffffffffu : 0xffffu, to_bf16(a, c));
      }
    }
}

void backward_head(const FlashProblem& p, const Item& item, int64_t head, const Buffers& b) {
  const int64_t Dp = round_up(p.D, 32), window = p.window ? p.window : item.padded, start = item.row0 % p.T;
  const uint16_t *q = p.q.data + item.row0 * p.q.stride + head * p.D, *dout = p.dout.data + item.row0 * p.dout.stride + head * p.D;
  pack_b_transposed(b.q_columns, q, p.q.stride, item.padded, item.rows, p.D);
  pack_b_transposed(b.dout_columns, dout, p.dout.stride, item.padded, item.rows, p.D);
  pack_b(b.q_rows, q, p.q.stride, item.padded, item.rows, p.D);
  pack_b(b.dout_rows, dout, p.dout.stride, item.padded, item.rows, p.D);
  row_statistics(p, item, head, b);
  clear(b.dq, item.padded * Dp);
  for (int64_t k0 = 0; k0 < item.padded; k0 += kBlock) {
    const int64_t end = min_of(item.padded, k0 + kBlock - 1 + window);        // past the last query that sees a key of this block
    for (int64_t q0 = k0; q0 < end; q0 += kBlock) {
      block_scores(b, Dp / 32, k0, q0, window);
      if (p.drop_below) block_keep(p, item, head, b, start + k0, start + q0);
      if (p.drop_below || p.softcap > 0)
        block_gradient<true>(p, b, k0, q0, window, (start + k0) % 4);
      else
        block_gradient<false>(p, b, k0, q0, window, 0);
      block_products(b, Dp, item.padded, k0, q0);
    }
  }
  write_dq(p, item, head, b);
}

void backward_item(const FlashProblem& p, const Item& item, const Buffers& b) {
  const int64_t Dp = round_up(p.D, 32), group = p.H / p.Hkv;
  const uint16_t *k = p.k.data + item.row0 * p.k.stride + item.kv_head * p.D, *v = p.v.data + item.row0 * p.v.stride + item.kv_head * p.D;
  pack_a(b.k_rows, k, p.k.stride, 0, item.padded, item.rows, p.D);
  pack_a(b.v_rows, v, p.v.stride, 0, item.padded, item.rows, p.D);
  pack_a_transposed(b.k_columns, k, p.k.stride, item.padded, item.rows, p.D);
  clear(b.dk, item.padded * Dp);
  clear(b.dv, item.padded * Dp);
  for (int64_t g = 0; g < group; g++) backward_head(p, item, item.kv_head * group + g, b);
  write_rows(p, item, p.dk, b.dk, p.scale);
  write_rows(p, item, p.dv, b.dv, p.keep);
}

}  // namespace

int64_t flash_backward_scratch(const FlashProblem& p) {
  Buffers unused;
  return carve(p, nullptr, &unused);
}

void flash_backward_amx(const FlashProblem& p) {
#pragma omp parallel num_threads(p.threads)
  {
    Buffers b;
    carve(p, p.scratch[omp_get_thread_num()], &b);
    tile_configure();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < p.docs * p.Hkv; i++) {
      const int64_t row0 = p.doc_starts[i / p.Hkv], rows = p.doc_starts[i / p.Hkv + 1] - row0;
      backward_item(p, {row0, rows, round_up(rows, kBlock), i % p.Hkv}, b);
    }
    tile_release();
  }
}

}  // namespace wyvern::isa
#endif
