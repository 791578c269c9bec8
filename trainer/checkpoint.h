// Checkpoints: a directory per step, HDF5 inside (foundation.md section 3).
//   checkpoints/step-00001000/  manifest.json (format, step, files with sizes and XXH3)
//                               checkpoint.h5 (index: virtual datasets)  rank-00000.h5 (the numbers)
// Contents: /meta (attributes: format, version, step, tokens, writer, compute, mesh; a readme), /config (YAML text), /tokenizer (text,
// may be empty), /params/<name>, /optim/<name>/<what>, /buffers/<name>, /train (JSON text of the training state). Datasets have the
// logical shape (padding included), so h5dump and h5py read them without knowing how they were cut. bf16 is a custom 16-bit float type.
// Written to step-N.partial, every file fsynced, renamed, folder fsynced; the manifest is checked before anything is read.
#pragma once
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/params.h"

namespace wyvern {

struct CheckpointMeta {
  int64_t step = 0, tokens = 0;
  std::string compute;             // f64 | f32 | bf16
  std::string config;              // resolved YAML
  std::string tokenizer;           // Tokenizer::save(), or empty
  std::string train_state;         // JSON, the trainer's own: loader, loss statistics
};

// For the start of a run: Error(kRuntime) when `folder` cannot be written or has no room for one checkpoint.
void check_checkpoint_room(const std::string& folder, const ParamStore&, Optimizer*);
// Saves <folder>/step-NNNNNNNN; returns its path. An existing complete one of the same step is replaced only after the new one is
// complete. optimizer may be null (an import). On any failure the partial folder is removed, and Error says what and where.
std::string save_checkpoint(const std::string& folder, const CheckpointMeta&, const ParamStore&, Optimizer*, Stream&);

// Reads and verifies the manifest (sizes, hashes) and the meta data; nothing else.
CheckpointMeta read_checkpoint_meta(const std::string& checkpoint);
// Strict: every missing, unexpected or differently shaped name is listed in one Error(kCorrupt). Values convert between f64, f32 and
// bf16 (with a note in the log) only when `convert`; resume demands the same types. optimizer may be null: state is not read.
void load_checkpoint(const std::string& checkpoint, ParamStore&, Optimizer*, Stream&, bool convert);

std::vector<int64_t> list_checkpoints(const std::string& folder);                  // complete ones, ascending
std::string checkpoint_path(const std::string& folder, int64_t step);
// Removes leftovers (*.partial) and all but the newest `keep`, milestones (multiples of `milestone`, 0 = none) excepted; never the
// newest good one, and no broken one: that is for people to judge.
void prune_checkpoints(const std::string& folder, int64_t keep, int64_t milestone);

// `ckpt show` and `ckpt verify`: every dataset with shape, dtype, bytes, and (verify) its checksum result. JSON text or a table.
std::string show_checkpoint(const std::string& checkpoint, bool json);
std::string verify_checkpoint(const std::string& checkpoint, bool json);           // Error(kCorrupt) naming the first bad file or dataset

}  // namespace wyvern
