// A store with every kind of tensor that a checkpoint meets, small, and an optimizer that only has state.
#pragma once
#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/params.h"

namespace wyvern {

class RankOf : public Comm {                 // a rank that never talks
 public:
  RankOf(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Stream&, Tensor, Reduce) override {}
  void all_gather(Stream&, Tensor, Tensor) override {}

 private:
  int rank_, size_;
};

class ToyOptimizer : public Optimizer {
 public:
  // Momentum m in `type` for each parameter, and a master where the value is narrower than the gradient.
  ToyOptimizer(const ParamStore& store, DType type) {
    for (const auto& p : store.all()) {
      add("m", *p, type);
      if (p->value.dtype != p->grad.dtype) add("master", *p, p->grad.dtype);
    }
  }
  void step(Stream&, const StepInfo&) override {}
  void reset_masters(Stream&) override {}
  void visit_state(const std::function<void(const std::string&, const Param&, Tensor)>& visit) override {
    for (const State& s : states_) visit(s.what, *s.param, s.tensor);
  }

 private:
  struct State { std::string what; const Param* param; Tensor tensor; };
  void add(const std::string& what, const Param& p, DType type) {
    memory_.emplace_back(size_t(p.value.numel() * bytes_of(type)), '\x5a');
    states_.push_back({what, &p, view(memory_.back().data(), type, p.local_shape())});
  }
  std::deque<std::vector<char>> memory_;
  std::vector<State> states_;
};

struct Toy {
  explicit Toy(DType dtype, Mesh m = Mesh::single(), int64_t hidden = 24, const std::string& extra = "")
      : mesh(std::move(m)), arena(4 << 20, true), store(arena, mesh, dtype), optimizer((build(hidden, extra), store), acc_of(dtype)) {}

  void build(int64_t hidden, const std::string& extra) {
    const auto third = hidden / 3;
    store.add(stream, {.name = "embed.weight", .shape = {64, 8}, .role = Role::embedding, .padding = 3});
    store.add(stream, {.name = "layers.2.qkv.weight", .shape = {hidden, 8}, .place = shard(0), .blocks = {2 * third, third}});
    store.add(stream, {.name = "layers.2.proj.weight", .shape = {8, 6}, .place = shard(1)});
    store.add(stream, {.name = "layers.2.conv.weight", .shape = {3, 4, 5}, .place = shard(1)});
    store.add(stream, {.name = "layers.2.norm.weight", .shape = {8}, .role = Role::vector, .keep_f32 = true});
    store.add(stream, {.name = "layers.10.wide.weight", .shape = {301, 512}, .place = shard(1)});      // large: chunked
    if (!extra.empty()) store.add(stream, {.name = extra, .shape = {2, 2}});
    store.add_buffer(stream, "layers.2.counts", {4}, DType::i32);
  }

  std::vector<Tensor> tensors() {
    std::vector<Tensor> out;
    for (const auto& p : store.all()) out.push_back(p->value);
    for (const auto& b : store.buffers()) out.push_back(b->value);
    optimizer.visit_state([&](const std::string&, const Param&, Tensor t) { out.push_back(t); });
    return out;
  }

  // Every element from (seed, tensor, index); some are special values. No OpenMP: also used after fork.
  void fill(uint64_t seed) {
    for (Tensor t : tensors()) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      for (int64_t i = 0; i < t.numel(); i++) {
        const uint64_t bits = (seed + uint64_t(i)) * 0x9e3779b97f4a7c15u;
        const double x = std::ldexp(double(bits >> 11), -52) - 1;
        if (t.dtype == DType::i32) as<int32_t>(t)[i] = int32_t(bits >> 40);
        else with_float(t.dtype, [&]<class T>(T) { as<T>(t)[i] = i == 5 ? T(float(-0.0)) : T(acc_t<T>(x)); });
      }
    }
  }

  std::string bytes() {                      // of everything: two toys hold the same bits when these are equal
    std::string out;
    for (Tensor t : tensors()) out.append(static_cast<const char*>(t.data), size_t(t.bytes()));
    return out;
  }

  Stream stream;
  Mesh mesh;
  Arena arena;
  ParamStore store;
  ToyOptimizer optimizer;
};

}  // namespace wyvern
