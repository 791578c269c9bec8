#include "kernels/base/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

namespace wyvern {

void Arena::Unmap::operator()(char* p) const { munmap(p, bytes); }
Arena::~Arena() = default;

Arena::Arena(int64_t capacity, bool dry, bool poison) : capacity_(capacity), dry_(dry), poison_(poison && !dry) {
  if (dry_ || capacity_ == 0) return;
  void* p = mmap(nullptr, size_t(capacity_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(kEnvironment, "cannot map {:.2f} GiB of memory for an arena; make the batch, context or model smaller (see `wyvern plan`)",
         double(capacity_) / (1 << 30));
  madvise(p, size_t(capacity_), MADV_HUGEPAGE);
  memory_ = std::unique_ptr<char, Unmap>(static_cast<char*>(p), Unmap{size_t(capacity_)});
  if (poison_) std::memset(p, 0xff, size_t(capacity_));
}

Tensor Arena::alloc(DType dtype, const Shape& dims, const char* name) {
  Tensor t = view(nullptr, dtype, dims);
  const int64_t bytes = (t.bytes() + 63) / 64 * 64;
  if (!dry_ && top_ + bytes > capacity_) {
    std::string table;
    for (const Entry& e : live_) table += fmt::format("\n  {:>14} {}", e.bytes, e.name);
    throw Error(kRuntime, fmt::format("bug: arena of {} bytes is full at {} ({} bytes); live:{}", capacity_, name, bytes, table));
  }
  if (!dry_) t.data = memory_.get() + top_;
  top_ += bytes;
  live_.push_back({name, bytes, top_});
  if (top_ > high_) { high_ = top_; list_ = live_; }
  return t;
}

void Arena::rewind(int64_t mark) {
  CHECK(mark <= top_, "rewind to {} of {}", mark, top_);
  if (poison_) std::memset(memory_.get() + mark, 0xff, size_t(top_ - mark));
  top_ = mark;
  while (!live_.empty() && live_.back().end > mark) live_.pop_back();
}

}  // namespace wyvern
