// The portable attention: keys and values of one (sequence, kv head) are copied once to acc_t, keys transposed, so that the
// loops over keys run along memory; one row of scores at a time. Any type, any option; the oracle of the matrix-unit path.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/cpu/isa/flash.h"

namespace wyvern::cpu {
namespace {

// For each row, the row its document starts at.
std::vector<int32_t> document_start(const Tensor& doc_starts, int64_t N) {
  std::vector<int32_t> start(static_cast<size_t>(N));
  const int32_t* d = as<int32_t>(doc_starts);
  for (int64_t i = 0; i + 1 < doc_starts.dim[0]; i++)
    for (int64_t n = d[i]; n < d[i + 1]; n++) start[size_t(n)] = d[i];
  return start;
}

template <class T> const T* head(const Columns& c, int64_t row, int64_t h, int64_t D) {
  return as<T>(c.matrix) + row * c.matrix.dim[1] + c.offset + h * D;
}
template <class T> T* head_out(const Columns& c, int64_t row, int64_t h, int64_t D) {
  return as<T>(c.matrix) + row * c.matrix.dim[1] + c.offset + h * D;
}

template <class T, class A = acc_t<T>> void load(A* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = A(from[i]);
}
// s[j] = sum_d q[d] * kt[d][j] for j in [lo, hi)
template <class A> void scores(A* s, const A* q, const A* kt, int64_t D, int64_t T, int64_t lo, int64_t hi) {
  for (int64_t j = lo; j < hi; j++) s[j] = 0;
  for (int64_t d = 0; d < D; d++) {
    const A w = q[d];
    const A* k = kt + d * T;
    for (int64_t j = lo; j < hi; j++) s[j] += w * k[j];
  }
}
// keep[j] = 0 or 1 / (1 - p): row i of global sequence, global head
template <class A> void keep_row(A* keep, const AttentionShape& p, int64_t sequence, int64_t h, int64_t i, int64_t lo, int64_t hi) {
  const uint32_t threshold = drop_threshold(p.dropout);
  const A kept = A(1 / (1 - p.dropout));
  for (int64_t j4 = lo / 4; j4 * 4 < hi; j4++) {
    const auto words = philox(p.key, uint32_t(sequence), uint32_t(h), uint32_t(i), uint32_t(j4));
    for (int64_t j = j4 * 4; j < j4 * 4 + 4; j++)
      if (j >= lo && j < hi) keep[j] = words[size_t(j % 4)] < threshold ? A(0) : kept;
  }
}

// What one (sequence, kv head) works with.
template <class T> struct Packed {
  using A = acc_t<T>;
  std::vector<A> kt, v, s, keep, q, slope;
  Packed(int64_t T_, int64_t D)
      : kt(size_t(T_ * D)), v(size_t(T_ * D)), s(size_t(T_)), keep(size_t(T_), A(1)), q(size_t(D)), slope(size_t(T_)) {}
  void load_keys(const Columns& k, int64_t row0, int64_t g, int64_t T_, int64_t D) {
    for (int64_t t = 0; t < T_; t++) {
      const T* x = head<T>(k, row0 + t, g, D);
      for (int64_t d = 0; d < D; d++) kt[size_t(d * T_ + t)] = A(x[d]);
    }
  }
  void load_values(const Columns& c, int64_t row0, int64_t g, int64_t T_, int64_t D) {
    for (int64_t t = 0; t < T_; t++) load(v.data() + t * D, head<T>(c, row0 + t, g, D), D);
  }
};

// scaled and capped scores; slope[j] = d capped / d scaled
template <class A> void cap_scores(A* s, A* slope, const AttentionShape& p, int64_t lo, int64_t hi) {
  for (int64_t j = lo; j < hi; j++) s[j] *= A(p.scale);
  if (p.softcap > 0)
    for (int64_t j = lo; j < hi; j++) {
      const A t = std::tanh(s[j] / A(p.softcap));
      s[j] = A(p.softcap) * t;
      if (slope) slope[j] = 1 - t * t;
    }
}
int64_t first_key(const AttentionShape& p, int64_t t, int64_t doc) {
  return p.window > 0 ? std::max(doc, t - p.window + 1) : doc;
}

template <class T> void forward(const AttentionForward& a) {
  using A = acc_t<T>;
  const AttentionShape& p = a.shape;
  const int64_t N = a.q.matrix.dim[0], L = p.T, D = p.D, B = N / L, group = p.H / p.Hkv;
  const std::vector<int32_t> start = document_start(a.doc_starts, N);
#pragma omp parallel
  {
    Packed<T> w(L, D);
    std::vector<A> o(static_cast<size_t>(D));
#pragma omp for collapse(2) schedule(dynamic, 1)
    for (int64_t b = 0; b < B; b++)
      for (int64_t g = 0; g < p.Hkv; g++) {
        const int64_t row0 = b * L;
        w.load_keys(a.k, row0, g, L, D);
        w.load_values(a.v, row0, g, L, D);
        for (int64_t h = g * group; h < (g + 1) * group; h++)
          for (int64_t t = 0; t < L; t++) {
            const int64_t lo = first_key(p, t, start[size_t(row0 + t)] - row0), hi = t + 1;
            load(w.q.data(), head<T>(a.q, row0 + t, h, D), D);
            scores(w.s.data(), w.q.data(), w.kt.data(), D, L, lo, hi);
            cap_scores(w.s.data(), static_cast<A*>(nullptr), p, lo, hi);
            A top = w.s[size_t(lo)], total = 0;
            for (int64_t j = lo; j < hi; j++) top = std::max(top, w.s[size_t(j)]);
            for (int64_t j = lo; j < hi; j++) total += w.s[size_t(j)] = std::exp(w.s[size_t(j)] - top);
            as<A>(a.lse)[(row0 + t) * p.H + h] = top + std::log(total);
            if (p.dropout > 0) keep_row(w.keep.data(), p, p.first_sequence + b, p.first_head + h, t, lo, hi);
            for (A& x : o) x = 0;
            for (int64_t j = lo; j < hi; j++) {
              const A weight = w.s[size_t(j)] / total * w.keep[size_t(j)];
              for (int64_t d = 0; d < D; d++) o[size_t(d)] += weight * w.v[size_t(j * D + d)];
            }
            for (int64_t d = 0; d < D; d++) as<T>(a.out)[((row0 + t) * p.H + h) * D + d] = T(o[size_t(d)]);
          }
      }
  }
}

template <class T> void backward(const AttentionBackward& a) {
  using A = acc_t<T>;
  const AttentionShape& p = a.shape;
  const int64_t N = a.q.matrix.dim[0], L = p.T, D = p.D, B = N / L, group = p.H / p.Hkv;
  const std::vector<int32_t> start = document_start(a.doc_starts, N);
#pragma omp parallel
  {
    Packed<T> w(L, D);
    std::vector<A> k(size_t(L * D)), vt(size_t(L * D)), dk(size_t(L * D)), dv(size_t(L * D)), dp(static_cast<size_t>(L)),
        dout(static_cast<size_t>(D)), dq(static_cast<size_t>(D));
#pragma omp for collapse(2) schedule(dynamic, 1)
    for (int64_t b = 0; b < B; b++)
      for (int64_t g = 0; g < p.Hkv; g++) {
        const int64_t row0 = b * L;
        w.load_keys(a.k, row0, g, L, D);
        for (int64_t t = 0; t < L; t++) {
          load(k.data() + t * D, head<T>(a.k, row0 + t, g, D), D);
          const T* x = head<T>(a.v, row0 + t, g, D);
          for (int64_t d = 0; d < D; d++) vt[size_t(d * L + t)] = A(x[d]);
        }
        std::fill(dk.begin(), dk.end(), A(0));
        std::fill(dv.begin(), dv.end(), A(0));
        for (int64_t h = g * group; h < (g + 1) * group; h++)
          for (int64_t t = 0; t < L; t++) {
            const int64_t n = row0 + t, lo = first_key(p, t, start[size_t(n)] - row0), hi = t + 1;
            load(w.q.data(), head<T>(a.q, n, h, D), D);
            load(dout.data(), as<T>(a.dout) + (n * p.H + h) * D, D);
            scores(w.s.data(), w.q.data(), w.kt.data(), D, L, lo, hi);
            cap_scores(w.s.data(), w.slope.data(), p, lo, hi);
            scores(dp.data(), dout.data(), vt.data(), D, L, lo, hi);
            if (p.dropout > 0) keep_row(w.keep.data(), p, p.first_sequence + b, p.first_head + h, t, lo, hi);
            A delta = 0;
            for (int64_t d = 0; d < D; d++) delta += dout[size_t(d)] * A(as<T>(a.out)[(n * p.H + h) * D + d]);
            const A lse = as<A>(a.lse)[n * p.H + h];
            for (A& x : dq) x = 0;
            for (int64_t j = lo; j < hi; j++) {
              const size_t J = size_t(j);
              const A prob = std::exp(w.s[J] - lse), kept = prob * w.keep[J];
              A ds = prob * (dp[J] * w.keep[J] - delta) * A(p.scale);
              if (p.softcap > 0) ds *= w.slope[J];
              for (int64_t d = 0; d < D; d++) {
                dq[size_t(d)] += ds * k[size_t(j * D + d)];
                dk[size_t(j * D + d)] += ds * w.q[size_t(d)];
                dv[size_t(j * D + d)] += kept * dout[size_t(d)];
              }
            }
            T* out = head_out<T>(a.dq, n, h, D);
            for (int64_t d = 0; d < D; d++) out[d] = T(dq[size_t(d)]);
          }
        for (int64_t t = 0; t < L; t++) {
          T *ok = head_out<T>(a.dk, row0 + t, g, D), *ov = head_out<T>(a.dv, row0 + t, g, D);
          for (int64_t d = 0; d < D; d++) { ok[d] = T(dk[size_t(t * D + d)]); ov[d] = T(dv[size_t(t * D + d)]); }
        }
      }
  }
}

// New rows one after another: append, then attend to everything kept. Heads are independent of each other.
template <class T> void decode(const AttentionDecode& a) {
  using A = acc_t<T>;
  const AttentionShape& p = a.shape;
  const int64_t B = a.k_cache.dim[0], capacity = a.k_cache.dim[1], D = p.D, K = p.Hkv * D, group = p.H / p.Hkv;
  const int32_t* position = as<int32_t>(a.positions);
  int32_t* length = as<int32_t>(a.length);
  for (int64_t b = 0; b < B; b++) {
    int64_t len = length[b];
    for (int64_t t = 0; t < p.T; t++) {
      len = position[b * p.T + t] == 0 ? 1 : len + 1;
      CHECK(len <= capacity, "key/value cache of {} rows is full", capacity);
    }
  }
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
  for (int64_t b = 0; b < B; b++)
    for (int64_t g = 0; g < p.Hkv; g++) {
      std::vector<A> s(static_cast<size_t>(capacity)), o(static_cast<size_t>(D));
      T *kc = as<T>(a.k_cache) + b * capacity * K + g * D, *vc = as<T>(a.v_cache) + b * capacity * K + g * D;
      int64_t len = length[b];
      for (int64_t t = 0; t < p.T; t++) {
        const int64_t n = b * p.T + t;
        if (position[n] == 0) len = 0;
        std::copy_n(head<T>(a.k, n, g, D), D, kc + len * K);
        std::copy_n(head<T>(a.v, n, g, D), D, vc + len * K);
        len++;
        const int64_t lo = p.window > 0 ? std::max<int64_t>(0, len - p.window) : 0;
        for (int64_t h = g * group; h < (g + 1) * group; h++) {
          const T* q = head<T>(a.q, n, h, D);
          for (int64_t j = lo; j < len; j++) {
            A dot = 0;
            for (int64_t d = 0; d < D; d++) dot += A(q[d]) * A(kc[j * K + d]);
            s[size_t(j)] = dot;
          }
          cap_scores(s.data(), static_cast<A*>(nullptr), p, lo, len);
          A top = s[size_t(lo)], total = 0;
          for (int64_t j = lo; j < len; j++) top = std::max(top, s[size_t(j)]);
          for (int64_t j = lo; j < len; j++) total += s[size_t(j)] = std::exp(s[size_t(j)] - top);
          for (A& x : o) x = 0;
          for (int64_t j = lo; j < len; j++)
            for (int64_t d = 0; d < D; d++) o[size_t(d)] += s[size_t(j)] / total * A(vc[j * K + d]);
          for (int64_t d = 0; d < D; d++) as<T>(a.out)[(n * p.H + h) * D + d] = T(o[size_t(d)]);
        }
      }
    }
  for (int64_t b = 0; b < B; b++)
    for (int64_t t = 0; t < p.T; t++) length[b] = position[b * p.T + t] == 0 ? 1 : length[b] + 1;
}

}  // namespace

void attention_forward(Stream&, const AttentionForward& a) {
  const DType d = a.q.matrix.dtype;
  if (isa::flash_supports(a.shape, d)) return isa::flash_forward(a);
  with_float(d, [&]<class T>(T) { forward<T>(a); });
}
void attention_backward(Stream&, const AttentionBackward& a) {
  const DType d = a.q.matrix.dtype;
  if (isa::flash_supports(a.shape, d)) return isa::flash_backward(a);
  with_float(d, [&]<class T>(T) { backward<T>(a); });
}
// The portable loops take a few rows of memory per thread for the time of a call: not worth declaring.
int64_t attention_workspace(const AttentionShape& s, DType d, bool backward) {
  return isa::flash_supports(s, d) ? isa::flash_workspace(s, backward) : 0;
}

void attention_decode(Stream&, const AttentionDecode& a) {
  with_float(a.q.matrix.dtype, [&]<class T>(T) { decode<T>(a); });
}

}  // namespace wyvern::cpu
