// Parameters: named tensors placed on the mesh. model and optim meet only here.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/arena.h"
#include "parallel/mesh.h"
#include "parallel/placement.h"

namespace wyvern {

enum class Role : uint8_t { matrix, embedding, head, vector, expert };     // optimizer groups match on it
const char* name_of(Role);

struct Init {
  enum Kind : uint8_t { zeros, ones, normal } kind = zeros;
  double std = 0;
};
inline Init init_zeros() { return {Init::zeros, 0}; }
inline Init init_ones() { return {Init::ones, 0}; }
inline Init init_normal(double std) { return {Init::normal, std}; }

struct ParamSpec {
  std::string name;                // "layers.3.attn.qkv.weight": also its HDF5 path and its label everywhere
  Shape shape;                     // full logical shape
  Placement place;
  Role role = Role::matrix;
  Init init;
  std::vector<int64_t> blocks;     // pieces of dim 0 of a fused tensor (q|k|v, gate|up); empty = one piece
  int64_t padding = 0;             // trailing rows of dim 0 that are no parameters (padded vocabulary): zero, never trained
  bool keep_f32 = false;           // value in acc_t even when the compute dtype is bf16
};
struct Param : ParamSpec {
  Tensor value;                    // local view; compute dtype, or acc_t with keep_f32
  Tensor grad;                     // local view; acc_t
  int rank = 0, size = 1;          // on the axis it is cut over

  int64_t cut(int64_t n) const { return place.tp == Place::shard ? n / size : n; }
  int64_t block(size_t i) const { return cut(blocks[i]); }      // local rows of block i
  Shape local_shape() const;
  int64_t count() const;           // trained elements of the logical tensor: padding left out
  void each(const std::function<void(int64_t local, int64_t global, int64_t n)>&) const;   // runs of n consecutive elements
};
struct Buffer {                    // state without gradient: expert counts, router bias; a partial sum over dp and tp
  std::string name;
  Tensor value;
};

class ParamStore {
 public:
  // dtype: the compute dtype. values and gradients come from `arena`. A dry stream only counts.
  ParamStore(Arena& arena, const Mesh& mesh, DType dtype) : arena_(arena), mesh_(mesh), dtype_(dtype) {}
  ParamStore(const ParamStore&) = delete;

  Param& add(Stream&, ParamSpec);
  Buffer& add_buffer(Stream&, const std::string& name, const Shape&, DType);
  Param& at(const std::string& name) const;             // Error when there is none
  Param* find(const std::string& name) const;           // null when there is none
  const std::vector<std::unique_ptr<Param>>& all() const { return params_; }
  const std::vector<std::unique_ptr<Buffer>>& buffers() const { return buffers_; }
  DType dtype() const { return dtype_; }
  const Mesh& mesh() const { return mesh_; }

  void initialise(Stream&, uint64_t seed);              // every value from (seed, name, global index), whatever the layout
  void zero_grad(Stream&);
  void sync_grad(Stream&);                              // SUM over dp, and over tp where the placement says partial
  double grad_norm(Stream&) const;                      // each logical element once
  int64_t count() const;                                // trained elements, padding left out
  int64_t version() const { return version_; }          // moves whenever values change: caches of packed copies check it
  void touch() { version_++; }

 private:
  Arena& arena_;
  const Mesh& mesh_;
  DType dtype_;
  std::vector<std::unique_ptr<Param>> params_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::map<std::string, Param*> by_name_;
  int64_t version_ = 0;
};

}  // namespace wyvern
