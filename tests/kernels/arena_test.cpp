#include "kernels/base/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/op_check.h"

namespace wyvern {
namespace {

TEST(Arena, HandsOutAlignedApartMemory) {
  Arena arena(1 << 16);
  const Tensor a = arena.alloc(DType::f32, {3, 5}, "a"), b = arena.alloc(DType::bf16, {7}, "b"), c = arena.alloc(DType::f64, {2}, "c");
  for (const Tensor& t : {a, b, c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data) % 64, 0u);
  EXPECT_EQ(to_string(a), "f32 (3, 5)");
  std::memset(a.data, 1, size_t(a.bytes()));
  std::memset(b.data, 2, size_t(b.bytes()));
  std::memset(c.data, 3, size_t(c.bytes()));
  EXPECT_EQ(static_cast<char*>(a.data)[a.bytes() - 1], 1);
  EXPECT_EQ(static_cast<char*>(b.data)[b.bytes() - 1], 2);
  EXPECT_EQ(arena.used(), 64 * 3);
}

TEST(Arena, RewindsAndRemembersThePeakByName) {
  Arena arena(1 << 16);
  const Tensor kept = arena.alloc(DType::f32, {16}, "kept");
  {
    Arena::Scope scope(arena);
    arena.alloc(DType::f32, {32}, "first");
    arena.alloc(DType::f32, {64}, "second");
  }
  EXPECT_EQ(arena.used(), 64);
  const Tensor later = arena.alloc(DType::f32, {16}, "later");
  EXPECT_EQ(static_cast<char*>(later.data), static_cast<char*>(kept.data) + 64);
  EXPECT_EQ(arena.high_water(), 64 + 128 + 256);
  std::string names;
  for (const Arena::Entry& e : arena.high_water_list()) names += e.name + " " + std::to_string(e.bytes) + "; ";
  EXPECT_EQ(names, "kept 64; first 128; second 256; ");
}

TEST(Arena, PoisonIsNanAtTheStartAndAfterEveryRewind) {
  Arena arena(1 << 12, true);
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (int round = 0; round < 2; round++) {
      Arena::Scope scope(arena);
      const Tensor t = arena.alloc(d, {8}, "t");
      with_float(d, [&]<class T>(T) {
        for (int i = 0; i < 8; i++) {
          EXPECT_TRUE(std::isnan(double(acc_t<T>(as<T>(t)[i])))) << name_of(d) << " round " << round;
          as<T>(t)[i] = T(1.0f);
        }
      });
    }
}

TEST(Arena, ADryOneCountsTheSameAndOwnsNothing) {
  Arena dry = Arena::counting(), real(1 << 16);
  for (Arena* arena : {&dry, &real}) {
    Arena::Scope scope(*arena);
    arena->alloc(DType::bf16, {3, 3}, "small");
    arena->alloc(DType::f64, {100}, "large");
  }
  EXPECT_TRUE(dry.dry());
  EXPECT_EQ(dry.high_water(), real.high_water());
  const Tensor t = dry.alloc(DType::f32, {int64_t(1) << 40}, "four TiB");
  EXPECT_EQ(t.data, nullptr);
  EXPECT_TRUE(bool(t)) << "a tensor of a dry pass is present";
}

TEST(Arena, FullNamesWhatIsLive) {
  Arena arena(256);
  arena.alloc(DType::f32, {32}, "activations");
  expect_refused({"arena of 256 bytes", "logits", "activations", "128"}, [&] { arena.alloc(DType::f32, {33}, "logits"); });
  arena.alloc(DType::f32, {32}, "fits to the last byte");
}

TEST(Arena, RewindForwardIsABug) {
  Arena arena(256);
  expect_refused({"rewind to 64 of 0"}, [&] { arena.rewind(64); });
}

}  // namespace
}  // namespace wyvern
