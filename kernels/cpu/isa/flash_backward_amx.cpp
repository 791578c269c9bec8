// Flash attention backward on the matrix unit. A work item is one key/value head of one document with all the query heads
// that share it, so every gradient has one writer and one fixed order of additions.
//
// Blocks of 128 keys x 128 queries hold everything transposed, S^T = K Q^T and dP^T = V dO^T, because then P^T and dS^T come out
// of the vector code as A tiles (dV += P^T dO, dK += dS^T Q), and dQ^T += K^T dS^T needs no more than an interleave of two rows.
// P is recomputed from lse; dS = P (dP - delta), delta = rowsum(dO * O) (arXiv 2205.14135); scale is applied at the end.
#ifdef __AMX_BF16__
#include "kernels/cpu/isa/flash_tiles.inl"

namespace wyvern::isa {
namespace {

constexpr int64_t kBlock = 128;           // keys and queries of a block: the sums of a product are loaded and stored once per block
constexpr float kNoRow = 1e30f;           // lse of padding rows: P = 0

struct Item {
  int64_t row0, rows, padded;             // the document: its first row, its length, the same rounded up to 32
  int64_t kv_head;
};
struct Buffers {
  uint16_t *k_rows, *v_rows, *k_columns;             // A tiles: [key / 16][d / 32] twice, [d / 16][key / 32]
  uint16_t *q_columns, *dout_columns;                // B tiles: [q / 16][d / 32]
  uint16_t *q_rows, *dout_rows;                      // B tiles: [d / 16][q / 32]
  float *lse, *delta;                                // (padded)  lse in powers of two
  float *dk, *dv;                                    // (padded, Dp), or one block's keys where no heads share them
  float* dq;                                         // (padded / 32, Dp, 32): transposed within 32 queries
  float *scores, *dprobs;                            // (32 keys, 32 queries)
  uint16_t *probs, *dscores;                         // A tiles: [key / 16][q / 32]
  uint16_t* dscores_pairs;                           // B tiles: [q / 16][key / 32]
  uint16_t* keep;                                    // (strips, kKeepRows) dropout masks of 16 queries
};
struct Block {
  int64_t k0, q0, keys, queries;                       // first ones within the document and counts, multiples of 32
  int64_t window;
  float *dk, *dv;                                      // sums of the block's keys
  bool first_of_keys, first_of_queries;                // nothing has been added yet to dk, dv; to dq
  int64_t keep_skip;                                   // masks before that of the first key: its position % 4
};
constexpr int64_t kKeepRows = kBlock + 4;            // keys of a strip's masks: the first group of four may start early

int64_t carve(const FlashProblem& p, char* base, Buffers* b) {
  Carver c{base};
  const int64_t Lp = round_up(p.longest, 32), Dp = round_up(p.D, 32);
  b->k_rows = c.take<uint16_t>(Lp * Dp);
  b->v_rows = c.take<uint16_t>(Lp * Dp);
  b->k_columns = c.take<uint16_t>(Lp * Dp);
  b->q_columns = c.take<uint16_t>(Lp * Dp);
  b->dout_columns = c.take<uint16_t>(Lp * Dp);
  b->q_rows = c.take<uint16_t>(Lp * Dp);
  b->dout_rows = c.take<uint16_t>(Lp * Dp);
  b->lse = c.take<float>(Lp);
  b->delta = c.take<float>(Lp);
  const int64_t keys = p.H == p.Hkv ? kBlock : Lp;
  b->dk = c.take<float>(keys * Dp);
  b->dv = c.take<float>(keys * Dp);
  b->dq = c.take<float>(Lp * Dp);
  b->scores = c.take<float>(32 * 32);
  b->dprobs = c.take<float>(32 * 32);
  b->probs = c.take<uint16_t>(kBlock * kBlock);
  b->dscores = c.take<uint16_t>(kBlock * kBlock);
  b->dscores_pairs = c.take<uint16_t>(kBlock * kBlock);
  b->keep = c.take<uint16_t>(kBlock / 16 * kKeepRows);
  return c.used;
}

// lse (to powers of two) and delta of 32 rows of one head.
void row_statistics(const FlashProblem& p, const Item& item, int64_t head, const Source& out, const Source& dout, const Buffers& b,
                    int64_t first) {
  for (int64_t i = first; i < first + 32; i++) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t d = 0; d < p.D; d += 32)
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(load_row(out, i, d)), reinterpret_cast<__m512bh>(load_row(dout, i, d)));
    b.delta[i] = _mm512_reduce_add_ps(sum);
    b.lse[i] = i < item.rows ? p.lse[(item.row0 + i) * p.H + head] * kLog2e : kNoRow;
  }
}

// S^T and dP^T of 32 keys from k and 32 queries from q.
void tile_scores(const Buffers& b, int64_t steps, int64_t k, int64_t q) {
  const int64_t next = steps * kTile;
  const uint16_t *keys = b.k_rows + k / 16 * next, *values = b.v_rows + k / 16 * next;
  const uint16_t *queries = b.q_columns + q / 16 * next, *dout = b.dout_columns + q / 16 * next;
  multiply_2x2(steps, keys, keys + next, kTile, queries, queries + next, kTile, b.scores, 128, false);
  multiply_2x2(steps, values, values + next, kTile, dout, dout + next, kTile, b.dprobs, 128, false);
}

// Which of the block's pairs survive dropout. `start`: position of the document in its sequence.
void block_keep(const FlashProblem& p, const Item& item, int64_t head, const Buffers& b, const Block& block, int64_t start) {
  const int64_t first_key = start + block.k0, first_query = start + block.q0;
  const auto sequence = uint32_t(p.first_sequence + item.row0 / p.T), global_head = uint32_t(p.first_head + head);
  for (int64_t strip = 0; strip < block.queries / 16; strip++)
    for (int64_t group = 0; group * 4 < block.keep_skip + block.keys; group++)
      keep_masks(p, sequence, global_head, first_query + 16 * strip, first_key / 4 + group, b.keep + strip * kKeepRows + group * 4);
}

struct Pair {
  __m512 probs, dscores;                  // what goes into dV and into dK, dQ
};
// 16 queries of one key. kOptions: softcap or dropout.
template <bool kOptions>
[[gnu::always_inline]] inline Pair pair_of(const FlashProblem& p, const float* scores, const float* dprobs, __m512 lse, __m512 delta,
                                           __m512 scale, __mmask16 allowed, __mmask16 keep) {
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

// scores, dprobs -> probs, dscores, dscores_pairs for the tile at (i, j) of the block, two keys x 32 queries at a time.
template <bool kOptions>
void tile_gradient(const FlashProblem& p, const Buffers& b, const Block& block, int64_t i, int64_t j) {
  const __m512 scale = _mm512_set1_ps(p.scale * kLog2e);
  const float *row_lse = b.lse + block.q0 + j, *row_delta = b.delta + block.q0 + j;
  const __m512 lse[2] = {_mm512_load_ps(row_lse), _mm512_load_ps(row_lse + 16)};
  const __m512 delta[2] = {_mm512_load_ps(row_delta), _mm512_load_ps(row_delta + 16)};
  const int64_t apart = (block.k0 + i) - (block.q0 + j);            // key - query of the tile's first pair
  const bool edge = apart + 31 > 0 || 31 - apart >= block.window;   // some pair of the tile is not allowed
  for (int64_t r = 0; r < 32; r += 2) {
    Pair pair[2][2];                                                // [key][16 queries]
    for (int64_t u = 0; u < 2; u++) {
      for (int64_t h = 0; h < 2; h++) {
        const int64_t at = (r + u) * 32 + 16 * h, ahead = apart + r + u - 16 * h, masks = (j / 16 + h) * kKeepRows + block.keep_skip + i;
        const __mmask16 allowed = edge ? lanes(ahead, ahead + block.window) : __mmask16(0xffff);
        const __mmask16 keep = kOptions && p.drop_below ? b.keep[masks + r + u] : __mmask16(0xffff);
        pair[u][h] = pair_of<kOptions>(p, b.scores + at, b.dprobs + at, lse[h], delta[h], scale, allowed, keep);
      }
      const int64_t at = ((i + r) / 16 * (kBlock / 32) + j / 32) * kTile + (r % 16 + u) * 32;
      _mm512_store_si512(b.probs + at, to_bf16(pair[u][0].probs, pair[u][1].probs));
      _mm512_store_si512(b.dscores + at, to_bf16(pair[u][0].dscores, pair[u][1].dscores));
    }
    for (int64_t h = 0; h < 2; h++) {
      const int64_t at = ((j / 16 + h) * (kBlock / 32) + i / 32) * kTile + r / 2 * 32;
      _mm512_store_si512(b.dscores_pairs + at, interleave_halves(to_bf16(pair[0][h].dscores, pair[1][h].dscores)));
    }
  }
}
// The same for a tile without an allowed pair.
void tile_nothing(const Buffers& b, int64_t i, int64_t j) {
  for (int64_t u = 0; u < 2; u++) {
    const int64_t at = ((i / 16 + u) * (kBlock / 32) + j / 32) * kTile, pairs = ((j / 16 + u) * (kBlock / 32) + i / 32) * kTile;
    for (int64_t r = 0; r < 16; r++) {
      _mm512_store_si512(b.probs + at + r * 32, _mm512_setzero_si512());
      _mm512_store_si512(b.dscores + at + r * 32, _mm512_setzero_si512());
      _mm512_store_si512(b.dscores_pairs + pairs + r * 32, _mm512_setzero_si512());
    }
  }
}

void block_gradient(const FlashProblem& p, const Buffers& b, const Block& block) {
  const bool options = p.drop_below || p.softcap > 0;
  for (int64_t j = 0; j < block.queries; j += 32)
    for (int64_t i = 0; i < block.keys; i += 32) {
      const int64_t k = block.k0 + i, q = block.q0 + j;
      if (q + 31 < k || q - (k + 31) >= block.window) {
        tile_nothing(b, i, j);
        continue;
      }
      tile_scores(b, round_up(p.D, 32) / 32, k, q);
      if (options) tile_gradient<true>(p, b, block, i, j);
      else tile_gradient<false>(p, b, block, i, j);
    }
}

// dV += P^T dO, dK += dS^T Q, dQ^T += K^T dS^T.
void block_products(const Buffers& b, int64_t Dp, int64_t padded, const Block& block) {
  constexpr int64_t kNext = kBlock / 32 * kTile;       // from one 16-row strip of an operand of the block to the next
  const int64_t column = padded / 32 * kTile;          // the same for the operands of the whole document
  for (int64_t d = 0; d < Dp; d += 32) {
    const uint16_t *dout = b.dout_rows + d / 16 * column + block.q0 / 32 * kTile, *q = b.q_rows + d / 16 * column + block.q0 / 32 * kTile;
    const uint16_t* k = b.k_columns + d / 16 * column + block.k0 / 32 * kTile;
    for (int64_t i = 0; i < block.keys; i += 32) {
      const uint16_t *probs = b.probs + i / 16 * kNext, *dscores = b.dscores + i / 16 * kNext;
      float *dv = block.dv + i * Dp + d, *dk = block.dk + i * Dp + d;
      multiply_2x2(block.queries / 32, probs, probs + kNext, kTile, dout, dout + column, kTile, dv, Dp * 4, !block.first_of_keys);
      multiply_2x2(block.queries / 32, dscores, dscores + kNext, kTile, q, q + column, kTile, dk, Dp * 4, !block.first_of_keys);
    }
    for (int64_t j = 0; j < block.queries; j += 32) {
      const uint16_t* pairs = b.dscores_pairs + j / 16 * kNext;
      float* dq = b.dq + ((block.q0 + j) / 32 * Dp + d) * 32;
      multiply_2x2(block.keys / 32, k, k + column, kTile, pairs, pairs + kNext, kTile, dq, 128, !block.first_of_queries);
    }
  }
}

// The rows of a block of keys from k0: dk or dv = sums * factor.
void write_rows(const FlashProblem& p, const Item& item, const FlashColumns<uint16_t>& dst, int64_t k0, const float* sums, float factor) {
  const int64_t Dp = round_up(p.D, 32), count = min_of(kBlock, item.rows - k0);
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < count; i++) {
    uint16_t* row = dst.data + (item.row0 + k0 + i) * dst.stride + item.kv_head * p.D;
    for (int64_t d = 0; d < p.D; d += 32) {
      const float* s = sums + i * Dp + d;
      store_row(row + d, to_bf16(_mm512_mul_ps(f, _mm512_load_ps(s)), _mm512_mul_ps(f, _mm512_load_ps(s + 16))), p.D - d);
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
        store_row(row, to_bf16(a, c), p.D - d);
      }
    }
}

// Everything of one query head that the blocks read. The rows are far apart in memory: each is visited once.
void pack_queries(const FlashProblem& p, const Item& item, int64_t head, const Buffers& b) {
  const int64_t Dp = round_up(p.D, 32), column = item.padded / 32 * kTile;
  const FlashColumns<const uint16_t> out_columns = {p.out.data, p.out.stride};
  const Source q = source(p.q, item.row0, item.rows, head, p.D), dout = source(p.dout, item.row0, item.rows, head, p.D);
  const Source out = source(out_columns, item.row0, item.rows, head, p.D);
  for (int64_t t = 0; t < item.padded; t += 32) {
    prefetch_rows(q, t + 32);
    prefetch_rows(dout, t + 32);
    prefetch_rows(out, t + 32);
    pack_b_transposed(b.q_columns + t * Dp, q, t);
    pack_b(b.q_rows + t / 32 * kTile, column, q, t);
    pack_b_transposed(b.dout_columns + t * Dp, dout, t);
    pack_b(b.dout_rows + t / 32 * kTile, column, dout, t);
    row_statistics(p, item, head, out, dout, b, t);
  }
}

// Query head g of the group that shares the item's key/value head.
void backward_head(const FlashProblem& p, const Item& item, int64_t g, const Buffers& b) {
  const int64_t Dp = round_up(p.D, 32), group = p.H / p.Hkv, head = item.kv_head * group + g;
  const int64_t window = p.window ? p.window : item.padded, start = item.row0 % p.T;
  pack_queries(p, item, head, b);
  for (int64_t k0 = 0; k0 < item.padded; k0 += kBlock) {
    const int64_t sums = group == 1 ? 0 : k0 * Dp;                            // a group's sums wait for its last head
    const int64_t end = min_of(item.padded, k0 + kBlock - 1 + window);        // past the last query that sees a key of this block
    for (int64_t q0 = k0; q0 < end; q0 += kBlock) {
      const bool first_of_queries = k0 <= max_of(0, q0 - window + 1) / kBlock * kBlock;
      const Block block = {k0, q0, min_of(kBlock, item.padded - k0), min_of(kBlock, item.padded - q0), window, b.dk + sums, b.dv + sums,
                           g == 0 && q0 == k0, first_of_queries, (start + k0) % 4};
      if (p.drop_below) block_keep(p, item, head, b, block, start);
      block_gradient(p, b, block);
      block_products(b, Dp, item.padded, block);
    }
    if (g < group - 1) continue;
    write_rows(p, item, p.dk, k0, b.dk + sums, p.scale);
    write_rows(p, item, p.dv, k0, b.dv + sums, p.keep);
  }
  write_dq(p, item, head, b);
}

void backward_item(const FlashProblem& p, const Item& item, const Buffers& b) {
  const int64_t Dp = round_up(p.D, 32), group = p.H / p.Hkv, column = item.padded / 32 * kTile;
  const Source k = source(p.k, item.row0, item.rows, item.kv_head, p.D), v = source(p.v, item.row0, item.rows, item.kv_head, p.D);
  for (int64_t t = 0; t < item.padded; t += 32) {
    prefetch_rows(k, t + 32);
    prefetch_rows(v, t + 32);
    pack_a(b.k_rows + t * Dp, k, t);
    pack_a_transposed(b.k_columns + t / 32 * kTile, column, k, t);
    pack_a(b.v_rows + t * Dp, v, t);
  }
  for (int64_t g = 0; g < group; g++) backward_head(p, item, g, b);
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
      backward_item(p, {row0, rows, round_up(rows, 32), i % p.Hkv}, b);
    }
    tile_release();
    store_fence();
  }
}

}  // namespace wyvern::isa
#endif
