// The HDF5 side of checkpoints: which tensors there are, how ranks cut them, and the two kinds of file.
#pragma once
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/params.h"
#include "trainer/checkpoint.h"
#include "trainer/hdf5.h"

namespace wyvern {

struct CheckpointTensor {
  std::string path;                // the same in rank files and index: "/params/head.weight", "/optim/head.weight/m"
  Shape shape;                     // logical
  Tensor local;                    // this rank's view
  const Param* cut = nullptr;      // how it is cut over tp; null: the same on every rank
};

// In the order of the stores. optimizer may be null.
std::vector<CheckpointTensor> checkpoint_tensors(const ParamStore&, Optimizer*);
int64_t checkpoint_bytes(const std::vector<CheckpointTensor>&);          // of all ranks, with HDF5's own share estimated
std::vector<h5::Slab> slabs_of(const CheckpointTensor&, int tp_rank);    // what that rank's tensor holds of the logical one

// A rank file holds local tensors; what is the same everywhere is in rank 0's. The index holds no tensor data of its own.
void write_rank_file(const std::string& path, const std::vector<CheckpointTensor>&, int tp_rank);
void write_index(const std::string& path, const std::vector<CheckpointTensor>&, const CheckpointMeta&, const Mesh&);
CheckpointMeta read_index_meta(hid_t index);

}  // namespace wyvern
