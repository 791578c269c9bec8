#include "model/host_batch.h"

#include <algorithm>

namespace wyvern {
namespace {

Tensor ints(std::vector<int32_t>& v) { return view(v.data(), DType::i32, {int64_t(v.size())}); }

}  // namespace

HostBatch::HostBatch(int64_t B, int64_t T, std::vector<int32_t> tokens, std::vector<int32_t> targets,
                     const std::vector<int32_t>& document_starts)
    : tokens_(std::move(tokens)), targets_(std::move(targets)) {
  CHECK(int64_t(tokens_.size()) == B * T && targets_.size() == tokens_.size(), "{} tokens, {} targets for {} x {}", tokens_.size(),
        targets_.size(), B, T);
  for (int64_t b = 0; b < B; b++) doc_starts_.push_back(int32_t(b * T));
  doc_starts_.insert(doc_starts_.end(), document_starts.begin(), document_starts.end());
  std::sort(doc_starts_.begin(), doc_starts_.end());
  doc_starts_.erase(std::unique(doc_starts_.begin(), doc_starts_.end()), doc_starts_.end());
  positions_.resize(tokens_.size());
  for (size_t d = 0; d < doc_starts_.size(); d++) {
    const int64_t end = d + 1 < doc_starts_.size() ? doc_starts_[d + 1] : B * T;
    for (int64_t n = doc_starts_[d]; n < end; n++) positions_[size_t(n)] = int32_t(n - doc_starts_[d]);
  }
  doc_starts_.push_back(int32_t(B * T));
  batch_.B = B;
  batch_.T = T;
  batch_.tokens = ints(tokens_);
  batch_.targets = ints(targets_);
  batch_.positions = ints(positions_);
  batch_.doc_starts = ints(doc_starts_);
}

HostBatch HostBatch::decode(int64_t B, int64_t T, std::vector<int32_t> tokens, int64_t first_position) {
  HostBatch h;
  h.tokens_ = std::move(tokens);
  h.targets_.assign(h.tokens_.size(), -1);
  for (int64_t i = 0; i < B * T; i++) h.positions_.push_back(int32_t(first_position + i % T));
  h.batch_.B = B;
  h.batch_.T = T;
  h.batch_.tokens = ints(h.tokens_);
  h.batch_.targets = ints(h.targets_);
  h.batch_.positions = ints(h.positions_);
  return h;
}

HostBatch HostBatch::dry(int64_t B, int64_t T) {
  HostBatch h;
  h.batch_.B = B;
  h.batch_.T = T;
  for (Tensor* t : {&h.batch_.tokens, &h.batch_.targets, &h.batch_.positions}) *t = view(nullptr, DType::i32, {B * T});
  h.batch_.doc_starts = view(nullptr, DType::i32, {B + 1});
  return h;
}

int64_t HostBatch::valid_targets() const { return std::count_if(targets_.begin(), targets_.end(), [](int32_t t) { return t >= 0; }); }

}  // namespace wyvern
