// Arena: a bump allocator with named allocations. Three live per rank: params, saved, scratch.
// dry: counts and owns nothing. poison: fills memory with NaN bytes on construction and on every rewind, so that a read
// of rewound memory shows (WYVERN_POISON=1, and always in the tests).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/tensor.h"

namespace wyvern {

class Arena {
 public:
  struct Entry { std::string name; int64_t bytes, end; };
  static constexpr int64_t kUnlimited = INT64_MAX;

  static Arena counting() { return Arena(kUnlimited, true, false); }      // dry
  explicit Arena(int64_t capacity, bool poison = false) : Arena(capacity, false, poison) {}
  Arena(Arena&&) = default;
  ~Arena();

  Tensor alloc(DType, const Shape& dims, const char* name);              // 64-byte aligned; contents unspecified
  int64_t mark() const { return top_; }
  void rewind(int64_t mark);
  int64_t used() const { return top_; }
  int64_t high_water() const { return high_; }                           // bytes
  const std::vector<Entry>& high_water_list() const { return list_; }    // what was live at the peak, by name
  bool dry() const { return dry_; }

  struct Scope {                                                         // rewinds when it ends
    explicit Scope(Arena& a) : arena(a), mark(a.mark()) {}
    ~Scope() { arena.rewind(mark); }
    Scope(const Scope&) = delete;
    Arena& arena;
    int64_t mark;
  };

 private:
  Arena(int64_t capacity, bool dry, bool poison);
  struct Unmap {
    size_t bytes;
    void operator()(char*) const;
  };
  int64_t capacity_, top_ = 0, high_ = 0;
  bool dry_, poison_;
  std::unique_ptr<char, Unmap> memory_{nullptr, Unmap{0}};
  std::vector<Entry> live_, list_;
};

}  // namespace wyvern
