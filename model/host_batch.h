// HostBatch: a Batch with its own memory. Fills positions and document starts from token rows.
#pragma once
#include <vector>

#include "model/context.h"

namespace wyvern {

class HostBatch {
 public:
  // tokens, targets: B * T ids. document_starts: rows (besides each sequence's first) at which a new document begins.
  HostBatch(int64_t B, int64_t T, std::vector<int32_t> tokens, std::vector<int32_t> targets,
            const std::vector<int32_t>& document_starts = {});
  // Decode: the next T tokens of each of B sequences; row t of a sequence stands at position first + t.
  static HostBatch decode(int64_t B, int64_t T, std::vector<int32_t> tokens, int64_t first_position);
  // A batch without memory, for a dry pass.
  static HostBatch dry(int64_t B, int64_t T);
  HostBatch(const HostBatch&) = delete;
  HostBatch(HostBatch&&) = default;

  Batch& batch() { return batch_; }
  int64_t valid_targets() const;       // rows whose target counts

 private:
  HostBatch() = default;
  std::vector<int32_t> tokens_, targets_, positions_, doc_starts_;
  Batch batch_;
};

}  // namespace wyvern
