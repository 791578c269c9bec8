// The portable attention (F64, and the other types on the plain tier) against the definition, its own differences, and
// decode against forward. q, k and v lie in one matrix with gaps around them, as in a fused qkv projection.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/philox.h"
#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;

struct Case {
  int64_t B = 2, T = 13, H = 4, Hkv = 2, D = 6;
  int64_t window = 0;
  double softcap = 0, dropout = 0;
  std::vector<int32_t> documents = {};         // row offsets; empty: one document per sequence
  double scale = 0;                            // 0: 1 / sqrt(D)
};
const Case kCases[] = {
    {},
    {.B = 3, .T = 1},
    {.T = 7, .H = 3, .Hkv = 1},
    {.T = 7, .H = 2, .Hkv = 2, .D = 1},
    {.window = 1},
    {.window = 4},
    {.window = 50},
    {.softcap = 0.7},
    {.dropout = 0.3},
    {.documents = {0, 5, 6, 13, 20, 26}},
    {.scale = 0.9},
    {.H = 6, .Hkv = 2, .D = 3, .window = 3, .softcap = 1.5, .dropout = 0.2, .documents = {0, 9, 13, 15, 26}, .scale = 0.6}};

struct Attention {
  static constexpr int64_t kGap = 3;
  Attention(DType d, const Case& c)
      : shape{.H = c.H, .Hkv = c.Hkv, .D = c.D, .T = c.T, .scale = c.scale > 0 ? c.scale : 1 / std::sqrt(double(c.D)), .window = c.window,
              .softcap = c.softcap, .dropout = c.dropout, .key = 0x1234567890abcdefull, .first_sequence = 3, .first_head = 2},
        N(c.B * c.T), k0(2 * kGap + c.H * c.D), v0(k0 + kGap + c.Hkv * c.D), W(v0 + kGap + c.Hkv * c.D),
        qkv(OwnedTensor::normal(d, {N, W}, 1)), dqkv(d, {N, W}), out(d, {N, c.H * c.D}), dout(OwnedTensor::normal(d, {N, c.H * c.D}, 2)),
        lse(acc_of(d), {N, c.H}) {
    std::vector<int32_t> starts = c.documents;
    if (starts.empty())
      for (int64_t b = 0; b <= c.B; b++) starts.push_back(int32_t(b * c.T));
    documents = OwnedTensor::ints(starts);
  }
  void forward() {
    attention_forward(stream,
                      {.out = out, .lse = lse, .q = {qkv, kGap}, .k = {qkv, k0}, .v = {qkv, v0}, .doc_starts = documents, .shape = shape});
  }
  void backward() {
    attention_backward(stream, {.dq = {dqkv, kGap},
                                .dk = {dqkv, k0},
                                .dv = {dqkv, v0},
                                .dout = dout,
                                .out = out,
                                .lse = lse,
                                .q = {qkv, kGap},
                                .k = {qkv, k0},
                                .v = {qkv, v0},
                                .doc_starts = documents,
                                .shape = shape});
  }
  std::vector<Range> columns() const {
    return {{kGap, kGap + shape.H * shape.D}, {k0, k0 + shape.Hkv * shape.D}, {v0, v0 + shape.Hkv * shape.D}};
  }
  double q(int64_t n, int64_t h, int64_t d) const { return qkv.get(n * W + kGap + h * shape.D + d); }
  double k(int64_t n, int64_t h, int64_t d) const { return qkv.get(n * W + k0 + h / (shape.H / shape.Hkv) * shape.D + d); }
  double v(int64_t n, int64_t h, int64_t d) const { return qkv.get(n * W + v0 + h / (shape.H / shape.Hkv) * shape.D + d); }
  int64_t document(int64_t n) const {                     // which document row n is in
    int64_t i = 0;
    while (documents.get(i + 1) <= double(n)) i++;
    return i;
  }
  AttentionShape shape;
  int64_t N, k0, v0, W;
  OwnedTensor qkv, dqkv, out, dout, lse, documents;
};

TEST(Attention, ForwardIsTheDefinition) {
  for (const Case& c : kCases) {
    Attention a(DType::f64, c);
    const AttentionShape& s = a.shape;
    a.forward();
    for (int64_t n = 0; n < a.N; n++)
      for (int64_t h = 0; h < s.H; h++) {
        double total = 0;
        std::vector<double> want(size_t(s.D), 0.0);
        for (int64_t m = n / s.T * s.T; m < (n / s.T + 1) * s.T; m++) {       // every row of the sequence, allowed or not
          if (m > n || a.document(m) != a.document(n) || (s.window > 0 && n - m >= s.window)) continue;
          double score = 0;
          for (int64_t d = 0; d < s.D; d++) score += s.scale * a.q(n, h, d) * a.k(m, h, d);
          if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
          const auto words =
              philox(s.key, uint32_t(s.first_sequence + n / s.T), uint32_t(s.first_head + h), uint32_t(n % s.T), uint32_t(m % s.T / 4));
          const bool dropped = words[size_t(m % s.T % 4)] < drop_threshold(s.dropout);
          total += std::exp(score);
          if (!dropped)
            for (int64_t d = 0; d < s.D; d++) want[size_t(d)] += std::exp(score) * a.v(m, h, d) / (1 - s.dropout);
        }
        ASSERT_NEAR(a.lse.get(n * s.H + h), std::log(total), 1e-12) << "row " << n << " head " << h;
        for (int64_t d = 0; d < s.D; d++)
          ASSERT_NEAR(a.out.get((n * s.H + h) * s.D + d), want[size_t(d)] / total, 1e-12) << "row " << n << " head " << h;
      }
  }
}

TEST(Attention, Gradients) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << "T " << c.T << " H " << c.H << "/" << c.Hkv << " window " << c.window << " cap " << c.softcap
                                    << " dropout " << c.dropout << " documents " << c.documents.size());
    Attention a(DType::f64, c);
    const DifferentiableOp op{
        [&] { a.forward(); }, [&] { a.backward(); }, {{"qkv", a.qkv, a.dqkv, Gives::written, a.columns()}}, {{a.out, a.dout}}};
    expect_gradients(op);
    expect_accumulates(op);
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  for (DType d : {DType::f64, DType::f32, DType::bf16}) {
    Attention a(d, {});
    for (int64_t i = 0; i < a.qkv.view().numel(); i++) a.qkv.set(i, a.qkv.get(i) * 1000);
    a.dqkv.fill(0);
    a.forward();
    a.backward();
    for (const OwnedTensor* t : {&a.out, &a.lse, &a.dqkv})
      for (double v : t->values()) ASSERT_TRUE(std::isfinite(v));
  }
}

// ---- dropout's counters ------------------------------------------------------------------------------------------------
const Case kDropped{.B = 3, .T = 7, .H = 4, .Hkv = 4, .dropout = 0.4};

TEST(Attention, MaskDependsOnTheGlobalSequence) {          // the last sequence alone is the last rows of the batch
  Attention all(DType::f64, kDropped);
  Case one = kDropped;
  one.B = 1;
  Attention last(DType::f64, one);
  for (int64_t i = 0; i < last.qkv.view().numel(); i++) last.qkv.set(i, all.qkv.get(14 * all.W + i));
  last.shape.first_sequence = all.shape.first_sequence + 2;
  all.forward();
  last.forward();
  for (int64_t i = 0; i < last.out.view().numel(); i++) ASSERT_EQ(last.out.get(i), all.out.get(14 * 24 + i));
  last.shape.first_sequence = all.shape.first_sequence;
  last.forward();
  int64_t same = 0;
  for (int64_t i = 0; i < last.out.view().numel(); i++) same += last.out.get(i) == all.out.get(14 * 24 + i);
  EXPECT_LT(same, last.out.view().numel() / 2) << "the sequence is not part of the counter";
}

TEST(Attention, MaskDependsOnTheGlobalHead) {              // heads 2 and 3 as a rank of their own
  Attention all(DType::f64, kDropped);
  Case half = kDropped;
  half.H = half.Hkv = 2;
  Attention upper(DType::f64, half);
  const int64_t D = all.shape.D, columns = 2 * D;
  for (int64_t n = 0; n < all.N; n++)
    for (int64_t i = 0; i < columns; i++) {
      upper.qkv.set(n * upper.W + Attention::kGap + i, all.qkv.get(n * all.W + Attention::kGap + columns + i));
      upper.qkv.set(n * upper.W + upper.k0 + i, all.qkv.get(n * all.W + all.k0 + columns + i));
      upper.qkv.set(n * upper.W + upper.v0 + i, all.qkv.get(n * all.W + all.v0 + columns + i));
    }
  upper.shape.first_head = all.shape.first_head + 2;
  all.forward();
  upper.forward();
  for (int64_t n = 0; n < all.N; n++)
    for (int64_t i = 0; i < columns; i++) ASSERT_EQ(upper.out.get(n * columns + i), all.out.get(n * 2 * columns + columns + i));
}

// ---- decode --------------------------------------------------------------------------------------------------------------
// Feeds the rows of `a` to decode in pieces and gathers what comes out.
OwnedTensor decoded(const Attention& a, const std::vector<int64_t>& pieces, int64_t capacity) {
  const AttentionShape& s = a.shape;
  const int64_t B = a.N / s.T, HD = s.H * s.D;
  const DType d = a.qkv.view().dtype;
  OwnedTensor k_cache(d, {B, capacity, s.Hkv * s.D}), v_cache(d, {B, capacity, s.Hkv * s.D}), out(d, {a.N, HD});
  OwnedTensor length = OwnedTensor::ints(std::vector<int32_t>(size_t(B), 77));           // a used cache: position 0 must clear it
  int64_t t0 = 0;
  for (int64_t piece : pieces) {
    OwnedTensor qkv(d, {B * piece, a.W}), y(d, {B * piece, HD});
    std::vector<int32_t> positions;
    for (int64_t b = 0; b < B; b++)
      for (int64_t t = t0; t < t0 + piece; t++) {
        const int64_t from = b * s.T + t, to = b * piece + t - t0;
        for (int64_t i = 0; i < a.W; i++) qkv.set(to * a.W + i, a.qkv.get(from * a.W + i));
        positions.push_back(int32_t(double(from) - a.documents.get(a.document(from))));
      }
    const OwnedTensor at = OwnedTensor::ints(positions);
    AttentionShape shape = s;
    shape.T = piece;
    attention_decode(stream, {.out = y,
                              .k_cache = k_cache,
                              .v_cache = v_cache,
                              .length = length,
                              .q = {qkv, Attention::kGap},
                              .k = {qkv, a.k0},
                              .v = {qkv, a.v0},
                              .positions = at,
                              .shape = shape});
    for (int64_t b = 0; b < B; b++)
      for (int64_t i = 0; i < piece * HD; i++) out.set((b * s.T + t0) * HD + i, y.get(b * piece * HD + i));
    t0 += piece;
  }
  for (int64_t b = 0; b < B; b++) {
    const int64_t last = (b + 1) * s.T - 1;
    EXPECT_EQ(length.get(b), double(last) - a.documents.get(a.document(last)) + 1) << "length of sequence " << b;
  }
  return out;
}

TEST(Attention, DecodeEqualsForward) {
  const std::vector<int64_t> token_by_token(13, 1), after_prefill = {5, 1, 1, 6}, at_once = {13};
  for (const Case& c : {Case{}, Case{.H = 3, .Hkv = 1}, Case{.window = 4}, Case{.softcap = 0.7}, Case{.scale = 0.9},
                        Case{.documents = {0, 5, 6, 13, 22, 26}}, Case{.window = 3, .softcap = 1.5, .documents = {0, 13, 14, 26}}})
    for (const auto& pieces : {token_by_token, after_prefill, at_once})
      for (const auto& [d, tolerance] : {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-5}, {DType::bf16, 2e-2}}) {
        Attention a(d, c);
        a.forward();
        expect_close(record("out", decoded(a, pieces, 13)), record("out", a.out), tolerance);
      }
}

TEST(Attention, DocumentsMayOutliveTheCacheTogether) {       // 13 rows through a cache of 7: each document fits by itself
  Attention a(DType::f64, {.documents = {0, 7, 13, 19, 26}});
  a.forward();
  expect_close(record("out", decoded(a, std::vector<int64_t>(13, 1), 7)), record("out", a.out), 1e-12);
}

TEST(Attention, DecodeRefusesToOverflowItsCache) {
  const Attention a(DType::f64, {});
  expect_refused({"cache of 12 rows is full"}, [&] { decoded(a, std::vector<int64_t>(13, 1), 12); });
  expect_refused({"cache of 12 rows is full"}, [&] { decoded(a, {13}, 12); });
}

// ---- precision, threads, doors ---------------------------------------------------------------------------------------------
Results run(DType d, const Case& c) {
  Attention a(d, c);
  a.dqkv.fill(0);
  a.forward();
  a.backward();
  return {record("out", a.out), record("lse", a.lse), record("dqkv", a.dqkv)};
}

// Heads that bf16 takes to the matrix unit where there is one.
const Case kTiled{.B = 3, .T = 40, .D = 16, .window = 19, .softcap = 2, .dropout = 0.1, .documents = {0, 7, 40, 80, 120}};

TEST(Attention, Twins) {
  for (const Case& c : kCases) expect_twins([&](DType d) { return run(d, c); });
  expect_twins([&](DType d) { return run(d, kTiled); });
}
TEST(Attention, ThreadIndependent) {
  expect_thread_independent([](DType d) { return run(d, {.B = 5, .T = 31, .window = 9, .dropout = 0.1}); });
  expect_thread_independent([](DType d) { return run(d, kTiled); });
  expect_thread_independent([](DType d) {
    Attention a(d, {.B = 5});
    return Results{record("decoded", decoded(a, {5, 1, 7}, 13))};
  });
}

TEST(Attention, Doors) {
  Stream dry(true);
  const auto f32 = [](const Shape& s) { return view(nullptr, DType::f32, s); };
  const auto bf = [](const Shape& s) { return view(nullptr, DType::bf16, s); };
  const auto ints = [](int64_t n) { return view(nullptr, DType::i32, {n}); };
  const AttentionShape shape{.H = 4, .Hkv = 2, .D = 8, .T = 5, .scale = 1};
  const Tensor qkv = bf({10, 64}), out = bf({10, 32}), lse = f32({10, 4});
  const AttentionForward good{.out = out, .lse = lse, .q = {qkv, 0}, .k = {qkv, 32}, .v = {qkv, 48}, .doc_starts = ints(3), .shape = shape};
  const auto forward = [&](auto&& change) {
    AttentionForward a = good;
    change(a);
    attention_forward(dry, a);
  };
  forward([](AttentionForward&) {});
  expect_refused({"v: 2 heads of 8 at column 49", "(10, 64)"}, [&] { forward([](AttentionForward& a) { a.v.offset = 49; }); });
  expect_refused({"k f32 (10, 64)"}, [&] { forward([&](AttentionForward& a) { a.k.matrix = f32({10, 64}); }); });
  expect_refused({"k bf16 (9, 64)"}, [&] { forward([&](AttentionForward& a) { a.k.matrix = bf({9, 64}); }); });
  expect_refused({"H 4, Hkv 3"}, [&] { forward([](AttentionForward& a) { a.shape.Hkv = 3; }); });
  expect_refused({"10 rows of sequences of 4"}, [&] { forward([](AttentionForward& a) { a.shape.T = 4; }); });
  expect_refused({"out f32 (10, 32)"}, [&] { forward([&](AttentionForward& a) { a.out = f32({10, 32}); }); });
  expect_refused({"lse bf16 (10, 4)"}, [&] { forward([&](AttentionForward& a) { a.lse = bf({10, 4}); }); });
  expect_refused({"dropout 1"}, [&] { forward([](AttentionForward& a) { a.shape.dropout = 1; }); });
  expect_refused({"doc_starts f32 (3)"}, [&] { forward([&](AttentionForward& a) { a.doc_starts = f32({3}); }); });
  expect_refused({"doc_starts absent"}, [&] { forward([](AttentionForward& a) { a.doc_starts = {}; }); });

  const AttentionBackward back{.dq = {qkv, 0},
                               .dk = {qkv, 32},
                               .dv = {qkv, 48},
                               .dout = out,
                               .out = out,
                               .lse = lse,
                               .q = {qkv, 0},
                               .k = {qkv, 32},
                               .v = {qkv, 48},
                               .doc_starts = ints(3),
                               .shape = shape};
  const auto backward = [&](auto&& change) {
    AttentionBackward a = back;
    change(a);
    attention_backward(dry, a);
  };
  backward([](AttentionBackward&) {});
  expect_refused({"dk: 2 heads of 8 at column 60"}, [&] { backward([](AttentionBackward& a) { a.dk.offset = 60; }); });
  expect_refused({"dout bf16 (10, 31)"}, [&] { backward([&](AttentionBackward& a) { a.dout = bf({10, 31}); }); });
  expect_refused({"out f32 (10, 32)"}, [&] { backward([&](AttentionBackward& a) { a.out = f32({10, 32}); }); });
  expect_refused({"lse bf16 (10, 4)"}, [&] { backward([&](AttentionBackward& a) { a.lse = bf({10, 4}); }); });
  expect_refused({"doc_starts absent"}, [&] { backward([](AttentionBackward& a) { a.doc_starts = {}; }); });
  expect_refused({"10 rows of sequences of 4"}, [&] { backward([](AttentionBackward& a) { a.shape.T = 4; }); });

  const AttentionDecode next{.out = out,
                             .k_cache = bf({2, 9, 16}),
                             .v_cache = bf({2, 9, 16}),
                             .length = ints(2),
                             .q = {qkv, 0},
                             .k = {qkv, 32},
                             .v = {qkv, 48},
                             .positions = ints(10),
                             .shape = shape};
  const auto decode = [&](auto&& change) {
    AttentionDecode a = next;
    change(a);
    attention_decode(dry, a);
  };
  decode([](AttentionDecode&) {});
  expect_refused({"v_cache bf16 (2, 8, 16)"}, [&] { decode([&](AttentionDecode& a) { a.v_cache = bf({2, 8, 16}); }); });
  expect_refused({"v_cache f32 (2, 9, 16)"}, [&] { decode([&](AttentionDecode& a) { a.v_cache = f32({2, 9, 16}); }); });
  expect_refused({"length i32 (3)"}, [&] { decode([&](AttentionDecode& a) { a.length = ints(3); }); });
  expect_refused({"positions i32 (9)"}, [&] { decode([&](AttentionDecode& a) { a.positions = ints(9); }); });
  expect_refused({"positions f32 (10)"}, [&] { decode([&](AttentionDecode& a) { a.positions = f32({10}); }); });
  expect_refused({"out f32 (10, 32)"}, [&] { decode([&](AttentionDecode& a) { a.out = f32({10, 32}); }); });
}

}  // namespace
}  // namespace wyvern
