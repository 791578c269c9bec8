// gradcheck: the hand-written backward of a configured model against central differences, in F64 at a reduced size.
//   reduced: each distinct layer once, every option kept (ratio of heads to kv_heads, norms, rope, caps, dropout with fixed
//   keys), head_dim 8, V = 61 padded to 64, T = 13, window at most 5, packed documents, ignored targets.
//   per tensor: four-point differences (h = 2e-5) of sampled entries, first and last included, and two random directions.
//   bound: |difference| <= 1e-6 |gradient of the tensor| + 1e-9 |gradient of everything|
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "configs/node.h"
#include "parallel/params.h"

namespace wyvern {

struct GradcheckTensor {
  std::string name;
  Shape shape;
  int64_t entries = 0;       // sampled
  double norm = 0;           // of the manual gradient
  double error = 0;          // worst |difference| / allowed, over entries and directions
  double difference = 0, allowed = 0;
  std::string verdict;       // ok | zero | FAIL: zero = the gradient vanishes by symmetry, and so do the differences
};
struct GradcheckResult {
  bool passed = true;
  double worst = 0;          // largest error; passes while <= 1
  std::string worst_name;
  std::vector<GradcheckTensor> tensors;
};
struct GradcheckOptions {
  int entries = 24;          // sampled per tensor
  uint64_t seed = 1;
  std::function<void(ParamStore&)> tamper;                                            // tests: spoils the manual gradient
  std::function<void(const GradcheckTensor&, size_t done, size_t total)> progress;
};

// The overrides that reduce a config: "model.channels=24", ...
std::vector<std::string> gradcheck_overrides(const ConfigTree&);
GradcheckResult gradcheck(const ConfigTree& reduced, const GradcheckOptions&);
std::string to_table(const GradcheckResult&);
std::string to_json(const GradcheckResult&);

}  // namespace wyvern
