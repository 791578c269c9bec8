#include "parallel/params.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/philox.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace wyvern {

const char* name_of(Role r) {
  constexpr const char* names[] = {"matrix", "embedding", "head", "vector", "expert"};
  return names[int(r)];
}

Shape Param::local_shape() const {
  Shape s = shape;
  s[size_t(place.dim)] = cut(s[size_t(place.dim)]);
  return s;
}

int64_t Param::count() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n - (padding ? n / shape[0] * padding : 0);
}

void Param::each(const std::function<void(int64_t, int64_t, int64_t)>& fn) const {
  const size_t dim = size_t(place.dim);
  const std::vector<int64_t> pieces = blocks.empty() || dim != 0 ? std::vector<int64_t>{shape[dim]} : blocks;
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < dim; i++) outer *= shape[i];
  for (size_t i = dim + 1; i < shape.size(); i++) inner *= shape[i];
  const int64_t local_rows = cut(shape[dim]), global_rows = shape[dim];
  for (int64_t o = 0; o < outer; o++) {
    int64_t at = 0, start = 0;
    for (int64_t piece : pieces) {
      const int64_t mine = place.tp == Place::shard ? rank * cut(piece) : 0;
      fn((o * local_rows + at) * inner, (o * global_rows + start + mine) * inner, cut(piece) * inner);
      at += cut(piece);
      start += piece;
    }
  }
}

Param& ParamStore::add(Stream&, ParamSpec spec) {
  CHECK(!by_name_.contains(spec.name), "two parameters are called {}", spec.name);
  auto p = std::make_unique<Param>();
  static_cast<ParamSpec&>(*p) = std::move(spec);
  CHECK(p->blocks.empty() || std::accumulate(p->blocks.begin(), p->blocks.end(), int64_t(0)) == p->shape[0],
        "{}: blocks do not add up to {}", p->name, p->shape[0]);
  p->rank = mesh_.tp->rank();
  p->size = mesh_.tp->size();
  if (p->place.tp == Place::shard) {
    const auto pieces = p->blocks.empty() || p->place.dim != 0 ? std::vector<int64_t>{p->shape[size_t(p->place.dim)]} : p->blocks;
    for (int64_t n : pieces)
      if (n % p->size) fail(kUsage, "{}: {} rows are not divisible by parallel.tp = {}", p->name, n, p->size);
  }
  p->value = arena_.alloc(p->keep_f32 ? acc_of(dtype_) : dtype_, p->local_shape(), "params.value");
  p->grad = arena_.alloc(acc_of(dtype_), p->local_shape(), "params.grad");
  by_name_[p->name] = p.get();
  params_.push_back(std::move(p));
  return *params_.back();
}

Buffer& ParamStore::add_buffer(Stream& s, const std::string& name, const Shape& shape, DType dtype) {
  buffers_.push_back(std::make_unique<Buffer>(Buffer{name, arena_.alloc(dtype, shape, "params.buffer")}));
  zero(s, {.y = buffers_.back()->value});
  return *buffers_.back();
}

Param* ParamStore::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}
Param& ParamStore::at(const std::string& name) const {
  Param* p = find(name);
  CHECK(p != nullptr, "there is no parameter {}", name);
  return *p;
}

namespace {

// Element g of a parameter: Box-Muller on the pair (g & ~1, g | 1), so both halves of one draw are used.
template <class T> void draw(const Param& p, uint64_t key) {
  const int64_t trained = p.count();
  p.each([&](int64_t local, int64_t global, int64_t n) {
    T* out = as<T>(p.value) + local;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
      const int64_t g = global + i;
      double x = p.init.kind == Init::ones ? 1 : 0;
      if (p.init.kind == Init::normal) {
        const auto pair = uint64_t(g) / 2;
        const auto w = philox(key, uint32_t(pair), uint32_t(pair >> 32), 0, 0);
        const double radius = std::sqrt(-2 * std::log(uniform(w[0], w[1]))), angle = 2 * M_PI * uniform(w[2], w[3]);
        x = p.init.std * radius * (g % 2 ? std::sin(angle) : std::cos(angle));
      }
      if (p.padding && g >= trained) x = 0;
      out[i] = T(acc_t<T>(x));
    }
  });
}

}  // namespace

void ParamStore::initialise(Stream& s, uint64_t seed) {
  if (s.dry()) return;
  for (auto& p : params_) {
    const uint64_t key = mix(mix(uint64_t(0), seed), p->name);
    with_float(p->value.dtype, [&]<class T>(T) { draw<T>(*p, key); });
    zero(s, {.y = p->grad});
  }
  touch();
}

void ParamStore::zero_grad(Stream& s) {
  for (auto& p : params_) zero(s, {.y = p->grad});
}

void ParamStore::sync_grad(Stream& s) {
  for (auto& p : params_) {
    if (p->place.tp == Place::partial_grad) mesh_.tp->all_reduce(s, p->grad);
    mesh_.dp->all_reduce(s, p->grad);
  }
  for (auto& b : buffers_) {
    mesh_.tp->all_reduce(s, b->value);
    mesh_.dp->all_reduce(s, b->value);
  }
}

double ParamStore::grad_norm(Stream& s) const {
  double total = 0;
  for (auto& p : params_)
    if (p->place.tp == Place::shard || mesh_.tp->rank() == 0) sum_squares(s, {.out = &total, .x = p->grad});
  mesh_.tp->all_reduce(s, view(&total, DType::f64, {1}));
  return std::sqrt(total);
}

int64_t ParamStore::count() const {
  int64_t n = 0;
  for (auto& p : params_) n += p->count();
  return n;
}

}  // namespace wyvern
