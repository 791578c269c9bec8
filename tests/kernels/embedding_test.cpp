#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

Stream stream;
constexpr int64_t kN = 11, kR = 9, kC = 7;
const std::vector<int32_t> kTokens = {3, 0, 3, 3, 8, 1, 0, 5, 3, 7, 8};      // repeated; 2, 4 and 6 never seen; first and last row

struct Lookup {
  explicit Lookup(DType d, int64_t C = kC)
      : x(d, {kN, C}), w(OwnedTensor::normal(d, {kR, C}, 1)), index(OwnedTensor::ints(kTokens)), dx(OwnedTensor::normal(d, {kN, C}, 2)),
        dw(OwnedTensor::filled(acc_of(d), {kR, C}, 0)) {}
  OwnedTensor x, w, index, dx, dw;
};

TEST(Embedding, Gradients) {
  Lookup e(DType::f64);
  const DifferentiableOp op{[&] { embedding_forward(stream, {.x = e.x, .w = e.w, .index = e.index}); },
                            [&] { embedding_backward(stream, {.dw = e.dw, .dx = e.dx, .index = e.index}); },
                            {{"w", e.w, e.dw, Gives::accumulated}}, {{e.x, e.dx}}};
  expect_gradients(op);
  expect_accumulates(op);
}

TEST(Embedding, UnseenRowsKeepTheirGradientToTheBit) {
  Lookup e(DType::f64);
  e.dw.fill(0.1);
  embedding_backward(stream, {.dw = e.dw, .dx = e.dx, .index = e.index});
  for (int64_t r : {2, 4, 6})
    for (int64_t c = 0; c < kC; c++) EXPECT_EQ(e.dw.get(r * kC + c), 0.1);
}

TEST(Embedding, LooksUpAndAdds) {
  Lookup e(DType::f64);
  embedding_forward(stream, {.x = e.x, .w = e.w, .index = e.index});
  for (int64_t n = 0; n < kN; n++)
    for (int64_t c = 0; c < kC; c++) ASSERT_EQ(e.x.get(n * kC + c), e.w.get(kTokens[size_t(n)] * kC + c));
  embedding_forward(stream, {.x = e.x, .w = e.w, .index = e.index, .add = true});
  for (int64_t n = 0; n < kN; n++)
    for (int64_t c = 0; c < kC; c++) ASSERT_EQ(e.x.get(n * kC + c), 2 * e.w.get(kTokens[size_t(n)] * kC + c));
}

// A table cut into rows [0, 4) and [4, 9): the parts sum to the whole, and each part's gradient is the whole's rows.
TEST(Embedding, RowsOfOtherRanksAreZero) {
  Lookup whole(DType::f64), part(DType::f64);
  embedding_forward(stream, {.x = whole.x, .w = whole.w, .index = whole.index});
  embedding_backward(stream, {.dw = whole.dw, .dx = whole.dx, .index = whole.index});
  std::vector<double> sum(size_t(kN * kC), 0.0);
  for (const Range& r : {Range{0, 4}, Range{4, kR}}) {
    embedding_forward(stream, {.x = part.x, .w = rows(part.w, r.begin, r.end), .index = part.index, .first_row = r.begin});
    embedding_backward(stream, {.dw = rows(part.dw, r.begin, r.end), .dx = part.dx, .index = part.index, .first_row = r.begin});
    for (size_t i = 0; i < sum.size(); i++) sum[i] += part.x.get(int64_t(i));
  }
  EXPECT_EQ(sum, whole.x.values());
  EXPECT_EQ(part.dw.values(), whole.dw.values());
}

Results run(DType d) {
  Lookup e(d, 150);                                        // three stripes of channels
  embedding_forward(stream, {.x = e.x, .w = e.w, .index = e.index});
  embedding_forward(stream, {.x = e.x, .w = e.w, .index = e.index, .first_row = 1, .add = true});
  embedding_backward(stream, {.dw = e.dw, .dx = e.dx, .index = e.index});
  return {record("x", e.x), record("dw", e.dw)};
}
TEST(Embedding, Twins) { expect_twins(run); }
TEST(Embedding, ThreadIndependent) { expect_thread_independent(run); }

TEST(Embedding, Doors) {
  Stream dry(true);
  const Tensor x = view(nullptr, DType::bf16, {4, 6}), w = view(nullptr, DType::bf16, {9, 6}), index = view(nullptr, DType::i32, {4});
  const Tensor dw = view(nullptr, DType::f32, {9, 6});
  embedding_forward(dry, {.x = x, .w = w, .index = index});
  embedding_backward(dry, {.dw = dw, .dx = x, .index = index});
  expect_refused({"(4, 6)", "(9, 5)"}, [&] { embedding_forward(dry, {.x = x, .w = view(nullptr, DType::bf16, {9, 5}), .index = index}); });
  expect_refused({"bf16 (4, 6)", "f32 (9, 6)"}, [&] { embedding_forward(dry, {.x = x, .w = dw, .index = index}); });
  expect_refused({"i32 (3)"}, [&] { embedding_forward(dry, {.x = x, .w = w, .index = rows(index, 0, 3)}); });
  expect_refused({"u16 (4)"}, [&] { embedding_forward(dry, {.x = x, .w = w, .index = view(nullptr, DType::u16, {4})}); });
  expect_refused({"bf16 (9, 6)", "bf16 (4, 6)"}, [&] { embedding_backward(dry, {.dw = w, .dx = x, .index = index}); });
}

}  // namespace
}  // namespace wyvern
