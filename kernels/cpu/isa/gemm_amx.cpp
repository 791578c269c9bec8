// GEMM on the matrix unit. The inner block is 48 x 32 of C: six accumulator tiles, one tile for A, one for B.
//
// A block of B (kc x nc) stays in L2 while the rows of A pass by. What is not a tile product happens in the shadow of one: two
// jobs are cut into small steps and done between products. The block finished before is converted and stored (a vector load
// right behind a tile store would wait for it), and the rows of A needed next are packed, their cache lines asked for well
// before: a load that misses holds up all tile loads behind it. With both, products of one block of k run within 5 % of bare
// tile loops over the same packed operands. (Measure with random operands: the same loops over zeros are a third faster.)
//
// A transposed A (dW) is packed beforehand and as a whole, in the order it lies in memory. Taken column range by column range
// in the shadow of products it came in pieces of a few cache lines, too short for the hardware to fetch ahead, and cost a quarter
// of the time; its transposition costs nothing measurable. Packed, it also allows blocks of k so long that C is seldom revisited.
#ifdef __AMX_BF16__
#include "kernels/cpu/isa/gemm_amx_block.inl"

namespace wyvern::isa {
namespace {

// Between blocks of k the sums of an f32 C that is added to stay in C; all others wait in scratch.
bool in_place(const GemmCall& c) { return !c.bf16_out && c.accumulate; }
bool sums_wait(const GemmCall& c) { return !in_place(c) && c.K > c.kc; }

struct Scratch {
  uint16_t* a[2];                  // panels, used in turn; not with a packed A
  float* block;                    // the one that leaves
  float* bias;                     // (nc)
  float* sums;                     // [panel][column / 32] blocks
};
int64_t carve(const GemmCall& c, char* base, Scratch* s) {
  int64_t used = 0;
  const auto take = [&](int64_t bytes) {
    char* p = base ? base + used : nullptr;
    used += round_up(bytes, 64);
    return p;
  };
  const int64_t panel = c.transpose_a ? 0 : kRows * c.kc * 2;
  s->a[0] = reinterpret_cast<uint16_t*>(take(panel));
  s->a[1] = reinterpret_cast<uint16_t*>(take(panel));
  s->block = reinterpret_cast<float*>(take(kBlock * 4));
  s->bias = reinterpret_cast<float*>(take(c.nc * 4));
  s->sums = reinterpret_cast<float*>(take(sums_wait(c) ? round_up(c.mc, kRows) * c.nc * 4 : 0));
  return used;
}

void load_bias(const GemmCall& c, int64_t n0, float* bias) {
  const auto* from = static_cast<const uint16_t*>(c.bias);
  for (int64_t j = 0; j < c.nc; j += 16) {
    __m512 x = _mm512_setzero_ps();
    if (from) {
      const auto lanes = static_cast<__mmask16>(first_lanes(min_of(16, c.N - n0 - j)));
      x = to_float(_mm256_maskz_loadu_epi16(lanes, from + n0 + j));
    }
    _mm512_store_ps(bias + j, x);
  }
}

// ---- a task: mc x nc of C ------------------------------------------------------------------------------------------------

class Task {
 public:
  Task(const GemmCall& c, int64_t m0, int64_t n0, const void* packed_a, const void* packed_b, void* scratch)
      : c_(c), m0_(m0), n0_(n0), a_(static_cast<const uint16_t*>(packed_a)), b_(static_cast<const uint16_t*>(packed_b)),
        source_(stored_a(c)), in_place_(in_place(c)), sums_wait_(sums_wait(c)) {
    carve(c, static_cast<char*>(scratch), &s_);
    load_bias(c, n0, s_.bias);
    rows_ = min_of(c.mc, c.M - m0);
    columns_ = min_of(c.nc, c.N - n0);
    panels_ = (rows_ + kRows - 1) / kRows;
    b_panels_ = (columns_ + kColumns - 1) / kColumns;
  }

  void run() {
    tile_configure();
    start_packing(0, 0);
    while (packing_.left > 0) pack_next(packing_, source_);
    for (int64_t k0 = 0; k0 < c_.K; k0 += c_.kc)
      for (int64_t panel = 0; panel < panels_; panel++) multiply_panel(k0, panel);
    store_rows(leaving_, kRows);
    _mm_sfence();                                        // streamed rows are visible before the task counts as done
    tile_release();
  }

 private:
  int64_t steps_at(int64_t k0) const { return (min_of(c_.kc, c_.K - k0) + 31) / 32; }

  void start_packing(int64_t k0, int64_t panel) {
    if (a_ || k0 >= c_.K) return;
    turn_ ^= 1;
    packing_ = {s_.a[turn_], m0_ + panel * kRows, k0, steps_at(k0), 0, 0, steps_at(k0) * kPartsPerStep};
  }

  // All columns for one panel of A, while the next one is packed. The jobs on the side live in local variables from block to
  // block: kept in the object they would be read back behind the tile stores (5 % of the time).
  void multiply_panel(int64_t k0, int64_t panel) {
    const uint16_t* a = a_ ? a_ + (panel * round_up(c_.K, 32) + k0) * kRows : s_.a[turn_];
    if (panel + 1 < panels_) start_packing(k0, panel + 1);
    else start_packing(k0 + c_.kc, 0);
    const int64_t parts = (packing_.left + b_panels_ - 1) / b_panels_;
    Leaving leaving = leaving_;
    Packing packing = packing_;
    for (int64_t j = 0; j < b_panels_; j++) block(k0, panel, j, a, b_ + k0 * c_.nc + j * c_.kc * kColumns, parts, leaving, packing);
    leaving_ = leaving;
    packing_ = packing;
  }

  [[gnu::always_inline]] void block(int64_t k0, int64_t panel, int64_t j, const uint16_t* a, const uint16_t* b, int64_t parts,
                                    Leaving& leaving, Packing& packing) {
    Sums sums = {nullptr, reinterpret_cast<char*>(s_.block), kBlockStride, nullptr};
    bool leaves = k0 + c_.kc >= c_.K;
    if (in_place_) {
      char* to = reinterpret_cast<char*>(static_cast<float*>(c_.c) + (m0_ + panel * kRows) * c_.ldc + n0_ + j * kColumns);
      leaves = rows_at(panel) < kRows || columns_at(j) < kColumns;
      if (leaves) {
        store_rows(leaving, kRows);                      // it may be this very block
        fetch(s_.block, to, panel, j);
        sums.in = reinterpret_cast<char*>(s_.block);
      } else {
        sums = {to, to, c_.ldc * 4, j + 1 < b_panels_ ? to + kBlockStride : nullptr};
      }
    } else if (sums_wait_) {
      char* waiting = reinterpret_cast<char*>(s_.sums + (panel * b_panels_ + j) * kBlock);
      if (k0 > 0) sums.in = waiting, sums.next = waiting + kBlock * 4;
      if (!leaves) sums.out = waiting;
    }
    multiply_block(a, b, steps_at(k0), sums, leaving, packing, source_, parts);
    if (leaves) leaving = leaving_block(panel, j);
  }

  int64_t rows_at(int64_t panel) const { return min_of(kRows, rows_ - panel * kRows); }
  int64_t columns_at(int64_t j) const { return min_of(kColumns, columns_ - j * kColumns); }

  // A block at the edge of C that sums start from.
  void fetch(float* block, const char* c, int64_t panel, int64_t j) const {
    const __mmask32 columns = first_lanes(columns_at(j));
    for (int64_t r = 0; r < kRows; r++) {
      const bool inside = r < rows_at(panel);
      const char* row = c + (inside ? r : 0) * c_.ldc * 4;
      const __mmask32 lanes = inside ? columns : 0;
      _mm512_store_ps(block + r * kColumns, _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), row));
      _mm512_store_ps(block + r * kColumns + 16, _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), row + 64));
    }
  }

  Leaving leaving_block(int64_t panel, int64_t j) const {
    const int64_t size = c_.bf16_out ? 2 : 4;
    Leaving x;
    x.from = s_.block;
    x.bias = s_.bias + j * kColumns;
    x.to = static_cast<char*>(c_.c) + ((m0_ + panel * kRows) * c_.ldc + n0_ + j * kColumns) * size;
    x.stride = c_.ldc * size;
    x.rows = rows_at(panel);
    x.columns = first_lanes(columns_at(j));
    x.half = c_.bf16_out;
    x.add = c_.bf16_out && c_.accumulate;
    x.stream = c_.stream && columns_at(j) == kColumns;
    return x;
  }

  const GemmCall& c_;
  int64_t m0_, n0_;
  const uint16_t *a_, *b_;
  Stored source_;
  bool in_place_, sums_wait_;
  Scratch s_ = {};
  int64_t rows_ = 0, columns_ = 0, panels_ = 0, b_panels_ = 0;
  int turn_ = 0;
  Packing packing_;
  Leaving leaving_;
};

// ---- the unit ------------------------------------------------------------------------------------------------------------

void pack_b(const GemmCall& c, int64_t k0, int64_t n0, int64_t panels, void* to) {
  const Stored b = stored_b(c);
  auto* tiles = static_cast<uint16_t*>(to);
  const int64_t end = min_of(k0 + c.kc, c.K);
  if (c.transpose_b) {                                   // along the stored rows, which are columns of B
    for (int64_t j = 0; j < panels * 2; j++)
      for (int64_t k = k0; k < end; k += 32)
        pack_rows_transposed(tiles + (j / 2 * c.kc + (k - k0)) * kColumns + j % 2 * kTile, b, n0 + j * 16, k);
  } else {
    for (int64_t k = k0; k < end; k += 32)
      for (int64_t j = 0; j < panels * 2; j++)
        pack_pairs(tiles + (j / 2 * c.kc + (k - k0)) * kColumns + j % 2 * kTile, b, k, n0 + j * 16);
  }
}

void pack_a(const GemmCall& c, int64_t m0, int64_t rows, int64_t k0, void* to) {
  const Stored a = stored_a(c);
  auto* tiles = static_cast<uint16_t*>(to);
  const int64_t K = round_up(c.K, 32);
  for (int64_t i = 0; i < (rows + kRows - 1) / kRows * kRowTiles; i++)
    pack_pairs_transposed(tiles + i / kRowTiles * K * kRows + (k0 / 32 * kRowTiles + i % kRowTiles) * kTile, a, k0, m0 + i * 16);
}

void run_task(const GemmCall& c, int64_t m0, int64_t n0, const void* packed_a, const void* packed_b, void* scratch) {
  Task(c, m0, n0, packed_a, packed_b, scratch).run();
}

// A block of B stays in L2 (2 MiB on every core with this unit) beside two panels of A; k is cut evenly.
void choose_blocks(GemmCall* c, int threads) {
  constexpr int64_t kBlockBytes = 1280 << 10, kPackedBytes = 96 << 20, kMostRows = 768, kPayingRows = 480;
  const int64_t longest = c->transpose_a ? 2112 : 832, k_blocks = (c->K + longest - 1) / longest;
  c->kc = round_up((c->K + k_blocks - 1) / k_blocks, 32);
  const int64_t most = max_of(kColumns, min_of(kBlockBytes / (2 * c->kc), kPackedBytes / (2 * c->K)) / kColumns * kColumns);
  const int64_t n_blocks = (c->N + most - 1) / most;
  c->nc = round_up((c->N + n_blocks - 1) / n_blocks, kColumns);
  // Four tasks a thread even out what other processes take; but with several blocks of k a task brings each block of B into
  // its L2 anew, which needs many rows to pay.
  const int64_t wanted = (4 * threads + n_blocks - 1) / n_blocks, enough = max_of(c->M / kPayingRows, (threads + n_blocks - 1) / n_blocks);
  const int64_t m_blocks = max_of((c->M + kMostRows - 1) / kMostRows, k_blocks > 1 ? min_of(wanted, enough) : wanted);
  c->mc = round_up((c->M + m_blocks - 1) / m_blocks, kRows);
}

int64_t scratch_bytes(const GemmCall& c) {
  Scratch s;
  return carve(c, nullptr, &s);
}

}  // namespace

const GemmUnit kGemmAmx = {kColumns, 2, choose_blocks, scratch_bytes, pack_b, run_task, pack_a};

}  // namespace wyvern::isa
#endif
