// Parameters on a mesh: which rows a rank holds, same initial numbers whatever the layout, and sums that count everything once.
// The ranks here run one after another; their communicator writes down what would have been reduced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "parallel/params.h"
#include "tests/data/temp_folder.h"
#include "tests/support/op_check.h"

namespace wyvern {
namespace {

class FakeComm final : public Comm {
 public:
  FakeComm(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Stream&, Tensor t, Reduce) override {
    reduced.push_back(t.data);
    if (t.dtype == DType::f64 && t.numel() == 1) last = *as<double>(t);
  }
  void all_gather(Stream&, Tensor, Tensor) override { FAIL() << "parameters gather nothing"; }
  std::vector<void*> reduced;      // in order
  double last = 0;                 // the latest lone f64: this rank's share of a sum

 private:
  int rank_, size_;
};

// A store on rank `rank` of a tp axis of `size`, with room for small tensors.
struct Rank {
  Rank(int rank, int size, DType dtype)
      : stream(false),
        arena(1 << 20, true),
        mesh{std::make_unique<FakeComm>(0, 1), std::make_unique<FakeComm>(rank, size)},
        params(arena, mesh, dtype) {}
  FakeComm& tp() { return static_cast<FakeComm&>(*mesh.tp); }
  FakeComm& dp() { return static_cast<FakeComm&>(*mesh.dp); }
  Param& add(ParamSpec spec) { return params.add(stream, std::move(spec)); }
  Stream stream;
  Arena arena;
  Mesh mesh;
  ParamStore params;
};

int64_t elements_of(const ParamSpec& spec) {
  int64_t n = 1;
  for (int64_t d : spec.shape) n *= d;
  return n;
}
using Runs = std::vector<std::vector<int64_t>>;      // {local, global, n}
Runs runs_of(const Param& p) {
  Runs runs;
  p.each([&](int64_t local, int64_t global, int64_t n) { runs.push_back({local, global, n}); });
  return runs;
}

const std::vector<ParamSpec>& specs() {
  static const std::vector<ParamSpec> all = {
      {.name = "qkv", .shape = {16, 3}, .place = shard(0), .init = init_normal(1), .blocks = {8, 4, 4}},
      {.name = "qkv.bias", .shape = {16}, .place = shard(0), .init = init_normal(1), .blocks = {8, 4, 4}},
      {.name = "o", .shape = {3, 8}, .place = shard(1), .init = init_normal(0.5)},
      {.name = "experts", .shape = {2, 4, 3}, .place = shard(1), .init = init_normal(1)},
      {.name = "embed", .shape = {12, 5}, .place = shard(0), .role = Role::embedding, .init = init_normal(1), .padding = 5},
      {.name = "norm", .shape = {7}, .place = replicated(), .role = Role::vector, .init = init_ones()},
      {.name = "q_norm", .shape = {5}, .place = partial_grad(), .role = Role::vector, .init = init_normal(2)}};
  return all;
}

TEST(Placement, BlocksAreCutOneByOne) {                     // q of 4 rows, k and v of 2: rank 1 of 2 holds the later half of each
  Rank r(1, 2, DType::f64);
  const Param& p = r.add({.name = "qkv", .shape = {8, 3}, .place = shard(0), .blocks = {4, 2, 2}});
  EXPECT_EQ(p.local_shape(), (Shape{4, 3}));
  EXPECT_EQ(p.block(0), 2);
  EXPECT_EQ(p.block(2), 1);
  EXPECT_EQ(runs_of(p), (Runs{{0, 6, 6}, {6, 15, 3}, {9, 21, 3}}));
}

TEST(Placement, ColumnsAreCutRowByRow) {
  Rank r(1, 2, DType::f64);
  const Param& p = r.add({.name = "o", .shape = {2, 6}, .place = shard(1)});
  EXPECT_EQ(p.local_shape(), (Shape{2, 3}));
  EXPECT_EQ(runs_of(p), (Runs{{0, 3, 3}, {3, 9, 3}}));
}

TEST(Placement, EveryElementBelongsToOneRank) {
  for (const int size : {1, 2, 4})
    for (const ParamSpec& spec : specs()) {
      std::map<int64_t, int> owners;
      for (int rank = 0; rank < size; rank++) {
        Rank r(rank, size, DType::f64);
        const Param& p = r.add(spec);
        std::vector<int> filled(size_t(p.value.numel()), 0);
        p.each([&](int64_t local, int64_t global, int64_t n) {
          for (int64_t i = 0; i < n; i++) {
            filled.at(size_t(local + i))++;
            owners[global + i]++;
          }
        });
        EXPECT_TRUE(std::all_of(filled.begin(), filled.end(), [](int n) { return n == 1; }))
            << spec.name << " on rank " << rank << " of " << size;
      }
      const int copies = spec.place.tp == Place::shard ? 1 : size;
      EXPECT_EQ(int64_t(owners.size()), elements_of(spec)) << spec.name;
      for (const auto& [index, n] : owners) EXPECT_EQ(n, copies) << spec.name << "[" << index << "]";
    }
}

// The logical tensor, put together from the ranks.
std::vector<double> assemble(int size, const ParamSpec& spec, DType dtype) {
  std::vector<double> whole(size_t(elements_of(spec)), NAN);
  for (int rank = 0; rank < size; rank++) {
    Rank r(rank, size, dtype);
    const Param& p = r.add(spec);
    r.params.initialise(r.stream, 3);
    with_float(p.value.dtype, [&]<class T>(T) {
      p.each([&](int64_t local, int64_t global, int64_t n) {
        for (int64_t i = 0; i < n; i++) whole[size_t(global + i)] = double(acc_t<T>(as<T>(p.value)[local + i]));
      });
    });
  }
  return whole;
}

TEST(Params, InitialValuesDoNotDependOnTheLayout) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const ParamSpec& spec : specs()) {
      const auto one = assemble(1, spec, dtype);
      EXPECT_EQ(assemble(2, spec, dtype), one) << spec.name << " in " << name_of(dtype);
      EXPECT_EQ(assemble(4, spec, dtype), one) << spec.name << " in " << name_of(dtype);
    }
}

TEST(Params, PaddingIsZeroAndCountsForNothing) {
  Rank r(0, 1, DType::f64);
  const Param& p = r.add(specs()[4]);
  r.params.initialise(r.stream, 3);
  EXPECT_EQ(p.count(), 7 * 5);
  EXPECT_EQ(r.params.count(), 7 * 5);
  for (int64_t i = 0; i < 60; i++) EXPECT_EQ(as<double>(p.value)[i] == 0, i >= 35) << i;
}

TEST(Params, S39_WhatCannotBeDividedIsRefused) {
  Rank r(0, 4, DType::f32);
  expect_error(kUsage, {"attn.o.weight", "10", "parallel.tp = 4"}, [&] {
    r.add({.name = "attn.o.weight", .shape = {8, 10}, .place = shard(1)});
  });
  // 16 rows divide by 4, but 2 key/value heads of one row do not.
  expect_error(kUsage, {"attn.qkv.weight", "2", "parallel.tp = 4"}, [&] {
    r.add({.name = "attn.qkv.weight", .shape = {16, 3}, .place = shard(0), .blocks = {12, 2, 2}});
  });
}

TEST(Params, NamesAreUnique) {
  Rank r(0, 1, DType::f32);
  const Param& p = r.add({.name = "a", .shape = {2}});
  EXPECT_EQ(&r.params.at("a"), &p);
  EXPECT_EQ(r.params.find("b"), nullptr);
  expect_refused({"there is no parameter b"}, [&] { r.params.at("b"); });
  expect_refused({"two parameters are called a"}, [&] { r.add({.name = "a", .shape = {3}}); });
  expect_refused({"blocks do not add up to 4"}, [&] { r.add({.name = "c", .shape = {4}, .blocks = {1, 2}}); });
}

TEST(Params, TypesOfValueAndGradient) {
  Rank r(0, 1, DType::bf16);
  const Param& plain = r.add({.name = "a", .shape = {2}});
  const Param& kept = r.add({.name = "b", .shape = {2}, .keep_f32 = true});
  EXPECT_EQ(plain.value.dtype, DType::bf16);
  EXPECT_EQ(kept.value.dtype, DType::f32);
  EXPECT_EQ(plain.grad.dtype, DType::f32);
}

TEST(Params, VersionMovesWithTheValues) {
  Rank r(0, 1, DType::f32);
  r.add({.name = "a", .shape = {2}});
  const int64_t before = r.params.version();
  r.params.initialise(r.stream, 1);
  const int64_t initialised = r.params.version();
  EXPECT_GT(initialised, before);
  r.params.touch();
  EXPECT_GT(r.params.version(), initialised);
}

TEST(Params, ADryStoreCountsTheSameBytes) {
  Rank r(0, 1, DType::bf16);
  Arena counting = Arena::counting();
  Stream dry(true);
  ParamStore params(counting, r.mesh, DType::bf16);
  for (const ParamSpec& spec : specs()) {
    r.add(spec);
    params.add(dry, spec);
  }
  params.initialise(dry, 1);
  EXPECT_EQ(counting.high_water(), r.arena.high_water());
  EXPECT_EQ(params.count(), r.params.count());
}

// Gradient of a logical tensor: element g is 1 + g / 10; replicated tensors hold it everywhere.
double fill_gradients(Rank& r) {
  double squares = 0;
  for (const auto& p : r.params.all()) {
    p->each([&](int64_t local, int64_t global, int64_t n) {
      for (int64_t i = 0; i < n; i++) as<double>(p->grad)[local + i] = 1 + double(global + i) / 10;
    });
    for (int64_t g = 0; g < elements_of(*p); g++) squares += (1 + double(g) / 10) * (1 + double(g) / 10);
  }
  return squares;
}

TEST(Params, S37_NormCountsEveryLogicalElementOnce) {
  for (const int size : {1, 2, 4}) {
    double shares = 0, whole = 0;
    for (int rank = 0; rank < size; rank++) {
      Rank r(rank, size, DType::f64);
      for (const ParamSpec& spec : specs()) r.add(spec);
      whole = fill_gradients(r);
      r.params.grad_norm(r.stream);
      shares += r.tp().last;
    }
    EXPECT_NEAR(shares, whole, 1e-12 * whole) << size << " ranks";
  }
  Rank one(0, 1, DType::f64);
  one.add({.name = "a", .shape = {2}});
  as<double>(one.params.at("a").grad)[0] = 3;
  as<double>(one.params.at("a").grad)[1] = 4;
  EXPECT_DOUBLE_EQ(one.params.grad_norm(one.stream), 5);
}

TEST(Params, OnlyPartialGradientsAreSummedOverTp) {
  Rank r(1, 2, DType::f64);
  for (const ParamSpec& spec : specs()) r.add(spec);
  Buffer& counts = r.params.add_buffer(r.stream, "expert.counts", {4}, DType::f64);
  r.params.sync_grad(r.stream);
  EXPECT_EQ(r.tp().reduced, (std::vector<void*>{r.params.at("q_norm").grad.data, counts.value.data}));
  std::vector<void*> all;
  for (const auto& p : r.params.all()) all.push_back(p->grad.data);
  all.push_back(counts.value.data);
  EXPECT_EQ(r.dp().reduced, all);
}

TEST(Params, ZeroGradientsAndNewBuffers) {
  Rank r(0, 1, DType::bf16);
  const Param& p = r.add({.name = "a", .shape = {3, 2}});
  const Buffer& b = r.params.add_buffer(r.stream, "b", {5}, DType::f32);
  for (int i = 0; i < 5; i++) EXPECT_EQ(as<float>(b.value)[i], 0);        // the arena is poisoned: they were cleared
  r.params.zero_grad(r.stream);
  for (int i = 0; i < 6; i++) EXPECT_EQ(as<float>(p.grad)[i], 0);
}

TEST(SelfComm, LeavesEverythingAsItIs) {
  const auto comm = self_comm();
  Stream s;
  double x = 3, out = 0;
  comm->all_reduce(s, view(&x, DType::f64, {1}));
  EXPECT_EQ(x, 3);
  comm->all_gather(s, view(&out, DType::f64, {1}), view(&x, DType::f64, {1}));
  EXPECT_EQ(out, 3);
  EXPECT_EQ(comm->size(), 1);
}

}  // namespace
}  // namespace wyvern
