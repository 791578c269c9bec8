// The rope keys of a config.json. Internal.
#pragma once
#include "model/attention/rope_scaling.h"
#include "trainer/interop/hf_keys.h"

namespace wyvern {

// rope_parameters (transformers 5), or rope_theta and rope_scaling (published checkpoints). context: max_position_embeddings.
RopeConfig read_hf_rope(HfKeys& config, int64_t context);

}  // namespace wyvern
