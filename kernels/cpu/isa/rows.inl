// The row kernels of rows.h, for whatever instruction set the including file is compiled for (rows_plain.cpp, rows_avx2.cpp,
// rows_avx512.cpp).
// Lengths that are no multiple of the vector width end in one partial vector, padded with a value that changes nothing.
#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/isa/rows_vector.inl"

namespace wyvern::isa {
namespace {

// ---- conversion and sums of two -------------------------------------------------------------------------------------------
template <class T> void widen(float* y, const T* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) { store(y + i, load(x + i, w), w); });
}
template <class T> void narrow(T* y, const float* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) { store(y + i, load(x + i, w), w); });
}
template <class T> void add(T* y, const T* a, const T* b, int64_t n) {
  sweep(n, [=](int64_t i, auto w) { store(y + i, load(a + i, w) + load(b + i, w), w); });
}
template <class T> double sum_squares(const T* x, int64_t n) {
  F64 sum[2] = {};
  sweep(n, [&](int64_t i, auto w) {
    const F64 v = __builtin_convertvector(load(x + i, w), F64);
    sum[i / kWidth % 2] += v * v;
  });
  double total = 0;
  for (int i = 0; i < kWidth; i++) total += sum[0][i] + sum[1][i];
  return total;
}

// ---- normalisation --------------------------------------------------------------------------------------------------------
// Two passes over the row, which is in the first-level cache by then: the sum of squared differences does not cancel.
template <class T>
void norm_forward(T* out, float* rstd, float* mean, T* x, const T* a, const T* b_add, const float* w, const float* b, int64_t D,
                  float eps) {
  if (a) add(x, a, b_add, D);
  float m = 0;
  if (mean) {
    Sum sum;
    sweep(D, [&](int64_t i, auto v) { sum.add(i, load(x + i, v)); });
    *mean = m = sum.total() / float(D);
  }
  Sum squares;
  sweep(D, [&](int64_t i, auto v) {
    const F32 c = load(x + i, v, m) - m;
    squares.add(i, c * c);
  });
  const float r = 1.0f / __builtin_sqrtf(squares.total() / float(D) + eps);
  *rstd = r;
  sweep(D, [&](int64_t i, auto v) {
    F32 y = (load(x + i, v) - m) * r;
    if (w) y *= load(w + i, v);
    if (b) y += load(b + i, v);
    store(out + i, y, v);
  });
}

// With xhat = (x - mean) rstd and g = w dout: dx = rstd (g - avg(g) - xhat avg(g xhat)); RMSNorm has neither mean nor avg(g).
template <class T>
void norm_backward(T* dx, float* dw, float* db, const T* dout, const T* x, float rstd, const float* mean, const float* w, int64_t D,
                   bool add_dx) {
  const float m = mean ? *mean : 0.0f;
  Sum plain, along;
  sweep(D, [&](int64_t i, auto v) {
    const F32 dy = load(dout + i, v), xhat = (load(x + i, v) - m) * rstd, g = w ? dy * load(w + i, v) : dy;
    plain.add(i, g);
    along.add(i, g * xhat);
    if (dw) store(dw + i, load(dw + i, v) + dy * xhat, v);
    if (db) store(db + i, load(db + i, v) + dy, v);
  });
  const float avg = mean ? plain.total() / float(D) : 0.0f, slope = along.total() / float(D);
  sweep(D, [&](int64_t i, auto v) {
    const F32 dy = load(dout + i, v), xhat = (load(x + i, v) - m) * rstd, g = w ? dy * load(w + i, v) : dy;
    F32 d = (g - avg - xhat * slope) * rstd;
    if (add_dx) d += load(dx + i, v);
    store(dx + i, d, v);
  });
}

// ---- activations ----------------------------------------------------------------------------------------------------------
// x/2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation where tanh is near -1.
constexpr float kTwoRoot2OverPi = 1.59576912f, kCubic = 0.044715f;

template <class T> void gelu_forward(T* y, const T* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) {
    const F32 v = load(x + i, w);
    store(y + i, v * sigmoid(v * kTwoRoot2OverPi * (v * v * kCubic + 1.0f)), w);
  });
}
template <class T> void gelu_backward(T* dx, const T* dy, const T* x, int64_t n) {
  sweep(n, [=](int64_t i, auto w) {
    const F32 v = at_most(at_least(load(x + i, w), -15.0f), 15.0f);          // the slope is 0 or 1 there; v^3 must not overflow
    const F32 s = sigmoid(v * kTwoRoot2OverPi * (v * v * kCubic + 1.0f));
    const F32 slope = s + v * s * (1.0f - s) * kTwoRoot2OverPi * (v * v * (3 * kCubic) + 1.0f);
    store(dx + i, load(dy + i, w) * slope, w);
  });
}
template <class T> void swiglu_forward(T* y, const T* x, int64_t F) {
  sweep(F, [=](int64_t i, auto w) {
    const F32 gate = load(x + i, w), up = load(x + F + i, w);
    store(y + i, up * gate * sigmoid(gate), w);
  });
}
template <class T> void swiglu_backward(T* dx, const T* dy, const T* x, int64_t F) {
  sweep(F, [=](int64_t i, auto w) {
    const F32 gate = load(x + i, w), up = load(x + F + i, w), d = load(dy + i, w), s = sigmoid(gate);
    store(dx + i, d * up * s * (1.0f + gate * (1.0f - s)), w);
    store(dx + F + i, d * gate * s, w);
  });
}

template <class T> void dropout(T* y, const T* x, int64_t n, const DropoutRow& row) {
  for (int64_t c = 0; c < n; c += 4 * kWidth) {                        // two calls of kWidth / 2 counters of four words
    uint64_t words[2 * kWidth];
    philox_words(words, row.key, row.sequence, row.t, uint32_t(c / 4));
    philox_words(words + kWidth, row.key, row.sequence, row.t, uint32_t(c / 4) + kWidth / 2);
    sweep(n - c < 4 * kWidth ? n - c : 4 * kWidth, [&](int64_t i, auto w) {
      const U32 word = *reinterpret_cast<const UnalignedU32*>(words + i / 2);
      store(y + c + i, word < row.threshold ? F32{} : load(x + c + i, w) * row.keep, w);        // a dropped NaN is 0
    });
  }
}

// ---- cross-entropy --------------------------------------------------------------------------------------------------------
template <class T> void softcap(T* z, int64_t n, float cap) {
  sweep(n, [=](int64_t i, auto w) { store(z + i, tanh_of(load(z + i, w) / cap) * cap, w); });
}
template <class T> void softmax_stats(float* max, float* sum, const T* z, int64_t n) {
  const float lowest = -__builtin_inff();
  F32 top[4] = {all(lowest), all(lowest), all(lowest), all(lowest)};
  sweep(n, [&](int64_t i, auto w) {
    const F32 v = load(z + i, w, lowest);
    F32& t = top[i / kWidth % 4];
    t = v > t ? v : t;                              // passes over NaN, which then shows in the sum
  });
  float m = lowest;
  for (int i = 0; i < kWidth; i++)
    for (int j = 0; j < 4; j++) m = top[j][i] > m ? top[j][i] : m;
  Sum total;
  sweep(n, [&](int64_t i, auto w) { total.add(i, exp_negative(load(z + i, w, lowest) - m)); });
  *max = m;
  *sum = n > 0 ? total.total() : 0.0f;
}
template <class T> void softmax_gradient(T* z, int64_t n, float max, float sum, int64_t target, float scale, float cap) {
  const bool here = target >= 0 && target < n;
  const float inverse = 1.0f / sum, inverse_cap = cap > 0 ? 1.0f / cap : 0.0f;
  const F32 at_target = here ? load(z + target, Part{1}) : F32{};
  const auto gradient = [=](F32 v, float hot) {
    const F32 t = v * inverse_cap;
    return (exp_negative(v - max) * inverse - hot) * scale * (1.0f - t * t);
  };
  sweep(n, [=](int64_t i, auto w) { store(z + i, gradient(load(z + i, w), 0.0f), w); });
  if (here) store(z + target, gradient(at_target, 1.0f), Part{1});
}

// ---- optimizer ------------------------------------------------------------------------------------------------------------
template <class T> void adamw(T* value, float* p, float* m, float* v, const float* grad, int64_t n, const AdamWFactors& f) {
  sweep(n, [=](int64_t i, auto w) {
    const F32 g = load(grad + i, w) * f.grad_scale;
    const F32 m1 = load(m + i, w) * f.beta1 + g * f.rest1, v1 = load(v + i, w) * f.beta2 + g * g * f.rest2;
    const F32 p1 = load(p + i, w) * f.decay - m1 * f.step / (root_of(v1) * f.root + f.eps);
    store(m + i, m1, w);
    store(v + i, v1, w);
    store(p + i, p1, w);
    if (value) store(value + i, p1, w);
  });
}

template <class T> constexpr RowKernels<T> table() {
  return {widen<T>,         narrow<T>,        add<T>,           sum_squares<T>,   norm_forward<T>,  norm_backward<T>,
          gelu_forward<T>,  gelu_backward<T>, swiglu_forward<T>, swiglu_backward<T>, dropout<T>,
          softcap<T>,       softmax_stats<T>, softmax_gradient<T>, adamw<T>};
}

}  // namespace
}  // namespace wyvern::isa
