#include "trainer/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>

#include "kernels/base/log.h"
#include "kernels/elementwise.h"
#include "trainer/checkpoint_contents.h"
#include "trainer/checkpoint_files.h"
#include "trainer/hdf5.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

// Beyond the file size limit (ulimit -f) a write raises SIGXFSZ, which kills; ignored, the write fails with EFBIG and can be reported.
class SizeSignalIgnored {
 public:
  SizeSignalIgnored() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGXFSZ, &ignore, &before_);
  }
  SizeSignalIgnored(const SizeSignalIgnored&) = delete;
  ~SizeSignalIgnored() { ::sigaction(SIGXFSZ, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

void write_folder(const std::string& partial, const CheckpointMeta& meta, const std::vector<CheckpointTensor>& tensors, const Mesh& mesh) {
  fs::remove_all(partial);
  fs::create_directory(partial);
  const std::string rank = rank_file(mesh.tp->rank());
  write_rank_file(partial + "/" + rank, tensors, mesh.tp->rank());
  write_index(partial + "/" + kIndexFile, tensors, meta, mesh);
  write_manifest(partial, meta.step, meta.tokens, {kIndexFile, rank});
}

struct OpenCheckpoint {
  Manifest manifest;
  h5::Handle index;
  std::map<std::string, h5::Handle> ranks;                         // by file name
};

OpenCheckpoint open_verified(const std::string& checkpoint) {
  OpenCheckpoint c{read_manifest(checkpoint), {}, {}};
  for (const ManifestFile& f : c.manifest.files) check_hash(checkpoint, f);
  for (const ManifestFile& f : c.manifest.files) {
    h5::Handle file = h5::open_file(checkpoint + "/" + f.name);
    if (f.name == kIndexFile) c.index = std::move(file);
    else c.ranks.emplace(f.name, std::move(file));
  }
  return c;
}

bool is_float(DType d) { return d == DType::f64 || d == DType::f32 || d == DType::bf16; }

// What keeps these tensors from being read: one line per name.
std::string mismatches(const std::vector<CheckpointTensor>& tensors, std::map<std::string, h5::Stored> stored, bool convert) {
  std::string out;
  for (const CheckpointTensor& t : tensors) {
    const auto it = stored.find(t.path);
    if (it == stored.end()) {
      out += fmt::format("\n  missing: {} {} {}", t.path, name_of(t.local.dtype), to_string(t.shape));
      continue;
    }
    const h5::Stored& s = it->second;
    if (s.shape != t.shape)
      out += fmt::format("\n  shape: {} is {} in the checkpoint, {} here", t.path, to_string(s.shape), to_string(t.shape));
    else if (s.dtype != t.local.dtype && !(convert && is_float(s.dtype) && is_float(t.local.dtype)))
      out += fmt::format("\n  type: {} is {} in the checkpoint, {} here", t.path, name_of(s.dtype), name_of(t.local.dtype));
    stored.erase(it);
  }
  for (const auto& [path, s] : stored) out += fmt::format("\n  unexpected: {} {} {}", path, name_of(s.dtype), to_string(s.shape));
  return out;
}

std::map<std::string, h5::Stored> stored_tensors(hid_t index, bool with_state) {
  std::map<std::string, h5::Stored> stored;
  for (const char* group : {"/params", "/buffers", "/optim"})
    if (with_state || group != std::string("/optim"))
      for (h5::Stored& s : h5::list_tensors(index, group)) stored[s.path] = std::move(s);
  return stored;
}

// What slabs `want` (of our tensor) and `have` (of a rank file's) share: read from the file into ours. Returns the elements.
int64_t read_shared(hid_t file, const std::string& path, const h5::Slab& have, const Tensor& out, const h5::Slab& want) {
  Shape from = have.local, to = want.local, count = want.count;
  int64_t elements = 1;
  for (size_t d = 0; d < count.size(); d++) {
    const int64_t begin = std::max(have.global[d], want.global[d]);
    count[d] = std::min(have.global[d] + have.count[d], want.global[d] + want.count[d]) - begin;
    if (count[d] <= 0) return 0;
    from[d] += begin - have.global[d];
    to[d] += begin - want.global[d];
    elements *= count[d];
  }
  h5::read_block(file, path, from, out, to, count);
  return elements;
}

void read_tensor(const OpenCheckpoint& c, const std::string& checkpoint, const CheckpointTensor& t, const Tensor& out) {
  int64_t elements = 0;
  const auto wanted = slabs_of(t, t.cut ? t.cut->rank : 0);
  for (const h5::Source& source : h5::sources_of(c.index, t.path)) {
    const auto rank = c.ranks.find(source.file);
    if (rank == c.ranks.end())
      fail(kCorrupt, "{}/{}: {} lies in {}, which manifest.json does not list", checkpoint, kIndexFile, t.path, source.file);
    for (const h5::Slab& have : source.slabs)
      for (const h5::Slab& want : wanted) elements += read_shared(rank->second, t.path, have, out, want);
  }
  if (elements != out.numel())
    fail(kCorrupt, "{}/{}: {}: the rank files hold {} of {} elements", checkpoint, kIndexFile, t.path, elements, out.numel());
}

void read_converted(const OpenCheckpoint& c, const std::string& checkpoint, const CheckpointTensor& t, DType stored, Stream& stream) {
  std::vector<char> memory(size_t(t.local.numel() * bytes_of(stored)));
  const Tensor as_stored = view(memory.data(), stored, shape_of(t.local));
  read_tensor(c, checkpoint, t, as_stored);
  cast(stream, {.y = t.local, .x = as_stored});
}

}  // namespace

void check_checkpoint_room(const std::string& folder, const ParamStore& store, Optimizer* optimizer) {
  check_room(folder, checkpoint_bytes(checkpoint_tensors(store, optimizer)));
}

std::string save_checkpoint(const std::string& folder, const CheckpointMeta& meta, const ParamStore& store, Optimizer* optimizer,
                            Stream& stream) {
  const std::string path = checkpoint_path(folder, meta.step), partial = path + ".partial";
  const Mesh& mesh = store.mesh();
  CHECK(!stream.dry() && mesh.tp->size() == 1 && mesh.dp->size() == 1,
        "several ranks must meet before the manifest: only one is supported");
  const SizeSignalIgnored guard;
  try {
    const std::vector<CheckpointTensor> tensors = checkpoint_tensors(store, optimizer);
    check_room(folder, checkpoint_bytes(tensors));
    write_folder(partial, meta, tensors, mesh);
    publish(partial, path);
  } catch (const std::exception& e) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    fail(kRuntime, "the checkpoint of step {} could not be saved: {}. The partial copy was removed; earlier checkpoints in {} are kept",
         meta.step, e.what(), folder);
  }
  return path;
}

CheckpointMeta read_checkpoint_meta(const std::string& checkpoint) {
  const OpenCheckpoint c = open_verified(checkpoint);
  const CheckpointMeta meta = read_index_meta(c.index);
  if (meta.step != c.manifest.step || meta.tokens != c.manifest.tokens)
    fail(kCorrupt, "{}: {} is of step {} ({} tokens), manifest.json of step {} ({} tokens): files of two checkpoints are mixed", checkpoint,
         kIndexFile, meta.step, meta.tokens, c.manifest.step, c.manifest.tokens);
  return meta;
}

void load_checkpoint(const std::string& checkpoint, ParamStore& store, Optimizer* optimizer, Stream& stream, bool convert) {
  const OpenCheckpoint c = open_verified(checkpoint);
  const auto stored = stored_tensors(c.index, optimizer != nullptr);
  const std::vector<CheckpointTensor> tensors = checkpoint_tensors(store, optimizer);
  const std::string problems = mismatches(tensors, stored, convert);
  if (!problems.empty())
    fail(kCorrupt, "{}: is of another model or optimizer; nothing was loaded:{}\n  compare its config: wyvern ckpt show {}", checkpoint,
         problems, checkpoint);
  std::map<std::string, int64_t> converted;                        // "f32 to bf16" -> tensors
  for (const CheckpointTensor& t : tensors) {
    const DType from = stored.at(t.path).dtype;
    if (from == t.local.dtype) {
      read_tensor(c, checkpoint, t, t.local);
    } else {
      read_converted(c, checkpoint, t, from, stream);
      converted[fmt::format("{} to {}", name_of(from), name_of(t.local.dtype))]++;
    }
  }
  for (const auto& [what, n] : converted) log_info("{}: {} of {} tensors converted from {}", checkpoint, n, tensors.size(), what);
  store.touch();
}

}  // namespace wyvern
