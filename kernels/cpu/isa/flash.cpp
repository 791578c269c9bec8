#include "kernels/cpu/isa/flash.h"

#include <omp.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/cpu/isa/flash_amx.h"
#include "kernels/cpu/isa/tier.h"
#include "kernels/cpu/isa/workspace.h"

namespace wyvern::isa {
namespace {

// Per-thread working memory, kept between calls and owned by the calling thread: a call allocates only when it meets
// a longer document than before, and before its parallel region, where an exception can still be thrown.
class Scratch {
 public:
  static constexpr int64_t kPage = 2 << 20;      // huge pages: the working set is more than small ones keep translations for
  ~Scratch() { workspace_changed(-total()); }
  char* const* get(int threads, int64_t bytes) {
    if (int64_t(buffers_.size()) < threads || bytes > bytes_) grow(threads, bytes);
    return pointers_.data();
  }

 private:
  struct Free { void operator()(char* p) const { std::free(p); } };
  void grow(int threads, int64_t bytes) {
    workspace_changed(-total());
    bytes_ = bytes > bytes_ ? (bytes + kPage - 1) / kPage * kPage : bytes_;
    buffers_.clear();
    pointers_.clear();
    for (int i = 0; i < threads; i++) {
      buffers_.emplace_back(static_cast<char*>(std::aligned_alloc(size_t(kPage), size_t(bytes_))));
      if (!buffers_.back())
        fail(kEnvironment, "flash attention: no memory for {} buffers of {} bytes; lower train.threads or train.sequence", threads, bytes_);
#ifdef MADV_HUGEPAGE
      madvise(buffers_.back().get(), size_t(bytes_), MADV_HUGEPAGE);
#endif
      pointers_.push_back(buffers_.back().get());
    }
    workspace_changed(total());
  }
  int64_t total() const { return int64_t(buffers_.size()) * bytes_; }
  int64_t bytes_ = 0;
  std::vector<std::unique_ptr<char, Free>> buffers_;
  std::vector<char*> pointers_;
};

template <class U> FlashColumns<U> columns(const Columns& c) {
  return {reinterpret_cast<U*>(as<bf16>(c.matrix)) + c.offset, c.matrix.dim[1]};
}
template <class U> FlashColumns<U> columns(const Tensor& t) { return {reinterpret_cast<U*>(as<bf16>(t)), t.dim[1]}; }

FlashProblem geometry(const AttentionShape& s) {
  FlashProblem p = {};
  p.H = s.H, p.Hkv = s.Hkv, p.D = s.D, p.T = s.T, p.window = s.window;
  p.scale = float(s.scale), p.softcap = float(s.softcap);
  p.drop_below = drop_threshold(s.dropout), p.keep = float(1 / (1 - s.dropout)), p.key = s.key;
  p.first_sequence = s.first_sequence, p.first_head = s.first_head;
  p.longest = s.T;                               // a document never crosses a sequence
  p.threads = omp_get_max_threads();
  return p;
}

template <class Args> FlashProblem problem_of(const Args& a) {
  FlashProblem p = geometry(a.shape);
  p.doc_starts = as<int32_t>(a.doc_starts), p.docs = a.doc_starts.dim[0] - 1;
  p.q = columns<const uint16_t>(a.q), p.k = columns<const uint16_t>(a.k), p.v = columns<const uint16_t>(a.v);
  p.out = columns<uint16_t>(a.out), p.lse = as<float>(a.lse);
  return p;
}

Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

}  // namespace

#ifdef __x86_64__
bool flash_supports(const AttentionShape& s, DType dtype) {
  return tier() == Tier::amx && dtype == DType::bf16 && s.D % 16 == 0 && s.D <= 256;
}
void flash_forward(const AttentionForward& a) {
  FlashProblem p = problem_of(a);
  p.scratch = scratch().get(p.threads, flash_forward_scratch(p));
  flash_forward_amx(p);
}
void flash_backward(const AttentionBackward& a) {
  FlashProblem p = problem_of(a);
  p.dout = columns<const uint16_t>(a.dout);
  p.dq = columns<uint16_t>(a.dq), p.dk = columns<uint16_t>(a.dk), p.dv = columns<uint16_t>(a.dv);
  p.scratch = scratch().get(p.threads, flash_backward_scratch(p));
  flash_backward_amx(p);
}
int64_t flash_workspace(const AttentionShape& s, bool backward) {
  const FlashProblem p = geometry(s);
  const int64_t bytes = backward ? flash_backward_scratch(p) : flash_forward_scratch(p);
  return p.threads * ((bytes + Scratch::kPage - 1) / Scratch::kPage * Scratch::kPage);
}
#else
int64_t flash_workspace(const AttentionShape&, bool) { return 0; }
bool flash_supports(const AttentionShape&, DType) { return false; }
void flash_forward(const AttentionForward&) { fail(kRuntime, "bug: flash attention was called on a machine without a matrix unit"); }
void flash_backward(const AttentionBackward&) { fail(kRuntime, "bug: flash attention was called on a machine without a matrix unit"); }
#endif

}  // namespace wyvern::isa
