#include "trainer/checkpoint_contents.h"

#include <fmt/format.h>

#include "trainer/checkpoint_files.h"
#include "trainer/version.h"

namespace wyvern {
namespace {

constexpr const char* kReadme =
    "A checkpoint of wyvern, a trainer for language models.\n"
    "/params/<name>: the weights; /optim/<name>/<what>: the optimizer's state of each; /buffers/<name>: other state of the model.\n"
    "/config: the resolved configuration (YAML); /tokenizer: its text form, may be empty; /train: the trainer's own state (JSON).\n"
    "These are virtual datasets: the numbers lie in rank-*.h5 beside this file, cut as the run was laid out, and each dataset here\n"
    "shows one whole tensor. HDF5 reports no error when a rank file is missing: floats then read as NaN, integers as 0. Compare\n"
    "sizes and XXH3 with manifest.json, or use `wyvern ckpt verify`.\n"
    "Types: the attribute `dtype`. bf16 is a 16-bit float type, the upper half of an f32; h5py and h5dump show it as numbers.\n"
    "Rows of padding (a padded vocabulary) are part of the tensors and are zero. Gradients are not stored.\n";

bool is_sharded(const CheckpointTensor& t) { return t.cut && t.cut->place.tp == Place::shard; }

Shape local_shape(const CheckpointTensor& t) { return t.cut ? t.cut->local_shape() : t.shape; }

std::vector<h5::Source> sources_of(const CheckpointTensor& t, int tp_size) {
  std::vector<h5::Source> sources;
  const int files = is_sharded(t) ? tp_size : 1;
  for (int rank = 0; rank < files; rank++) sources.push_back({rank_file(rank), local_shape(t), slabs_of(t, rank)});
  return sources;
}

}  // namespace

std::vector<CheckpointTensor> checkpoint_tensors(const ParamStore& store, Optimizer* optimizer) {
  std::vector<CheckpointTensor> out;
  for (const auto& p : store.all()) out.push_back({"/params/" + p->name, p->shape, p->value, p.get()});
  for (const auto& b : store.buffers()) out.push_back({"/buffers/" + b->name, shape_of(b->value), b->value});
  if (!optimizer) return out;
  optimizer->visit_state([&](const std::string& what, const Param& p, Tensor state) {
    const std::string path = "/optim/" + p.name + "/" + what;
    const bool like_the_value = shape_of(state) == p.local_shape();
    CHECK(like_the_value || p.place.tp != Place::shard || p.size == 1, "{}: state {} of a sharded {}", path, to_string(state),
          to_string(p.value));
    if (like_the_value) out.push_back({path, p.shape, state, &p});
    else out.push_back({path, shape_of(state), state});
  });
  return out;
}

int64_t checkpoint_bytes(const std::vector<CheckpointTensor>& tensors) {
  constexpr int64_t kPerTensor = 4 << 10;                         // header and chunk index, in each of two files; generously
  constexpr int64_t kTexts = 2 << 20;                             // config and tokenizer
  int64_t bytes = kTexts;
  for (const CheckpointTensor& t : tensors) bytes += t.local.bytes() * (is_sharded(t) ? t.cut->size : 1) + 2 * kPerTensor;
  return bytes;
}

std::vector<h5::Slab> slabs_of(const CheckpointTensor& t, int tp_rank) {
  const Shape zero(t.shape.size(), 0);
  if (!is_sharded(t)) return {{zero, zero, t.shape}};
  Param p = *t.cut;
  p.rank = tp_rank;
  const size_t dim = size_t(p.place.dim);
  int64_t inner = 1;
  for (size_t i = dim + 1; i < p.shape.size(); i++) inner *= p.shape[i];
  std::vector<h5::Slab> slabs;
  p.each([&](int64_t local, int64_t global, int64_t n) {
    if (local >= p.cut(p.shape[dim]) * inner) return;              // every index of the dims before `dim` is cut like the first
    h5::Slab slab{zero, zero, p.local_shape()};
    slab.local[dim] = local / inner;
    slab.global[dim] = global / inner;
    slab.count[dim] = n / inner;
    slabs.push_back(slab);
  });
  return slabs;
}

void write_rank_file(const std::string& path, const std::vector<CheckpointTensor>& tensors, int tp_rank) {
  h5::Handle file = h5::create_file(path);
  for (const CheckpointTensor& t : tensors)
    if (is_sharded(t) || tp_rank == 0) h5::write_tensor(file, t.path, t.local);
  file.close(path + ": cannot be finished");
}

void write_index(const std::string& path, const std::vector<CheckpointTensor>& tensors, const CheckpointMeta& meta, const Mesh& mesh) {
  h5::Handle file = h5::create_file(path);
  h5::write_attribute(file, "/meta", "format", std::string("wyvern-checkpoint"));
  h5::write_attribute(file, "/meta", "version", int64_t(kCheckpointVersion));
  h5::write_attribute(file, "/meta", "step", meta.step);
  h5::write_attribute(file, "/meta", "tokens", meta.tokens);
  h5::write_attribute(file, "/meta", "compute", meta.compute);
  h5::write_attribute(file, "/meta", "writer", fmt::format("wyvern {} {}", wyvern::version(), git_revision()));
  h5::write_attribute(file, "/meta", "mesh", fmt::format("dp {}, tp {}", mesh.dp->size(), mesh.tp->size()));
  h5::write_text(file, "/meta/readme", kReadme);
  h5::write_text(file, "/config", meta.config);
  h5::write_text(file, "/tokenizer", meta.tokenizer);
  h5::write_text(file, "/train", meta.train_state);
  for (const CheckpointTensor& t : tensors) h5::write_virtual(file, t.path, t.local.dtype, t.shape, sources_of(t, mesh.tp->size()));
  file.close(path + ": cannot be finished");
}

CheckpointMeta read_index_meta(hid_t index) {
  return {.step = h5::read_integer(index, "/meta", "step"),
          .tokens = h5::read_integer(index, "/meta", "tokens"),
          .compute = h5::read_string(index, "/meta", "compute"),
          .config = h5::read_text(index, "/config"),
          .tokenizer = h5::read_text(index, "/tokenizer"),
          .train_state = h5::read_text(index, "/train")};
}

}  // namespace wyvern
