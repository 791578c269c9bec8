// The folder side of checkpoints: names, manifest, durability, and which folders count as complete. No HDF5 here.
// manifest.json: {format: "wyvern-checkpoint", version: 1, step, tokens, files: [{name, bytes, xxh3}]}, written last.
#pragma once
#include <string>
#include <vector>

#include "kernels/base/check.h"

namespace wyvern {

inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kIndexFile = "checkpoint.h5";
std::string rank_file(int rank);                          // "rank-00000.h5"

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string xxh3;                                       // XXH3-64, 16 hex digits
};
struct Manifest {
  int64_t step = 0, tokens = 0;
  std::vector<ManifestFile> files;
};

// Makes the named files durable, hashes them as they lie on the disk, and writes manifest.json beside them.
void write_manifest(const std::string& checkpoint, int64_t step, int64_t tokens, const std::vector<std::string>& names);
// Parses it and compares the sizes of the files. Error(kUsage) when there is no such folder, else Error(kCorrupt) naming the file.
Manifest read_manifest(const std::string& checkpoint);
void check_hash(const std::string& checkpoint, const ManifestFile&);     // Error(kCorrupt)

// Error(kRuntime) when `folder` cannot be made or written, or has fewer than `bytes` left.
void check_room(const std::string& folder, int64_t bytes);
// Gives the finished folder `partial` its final name, durably; what had that name is gone afterwards.
void publish(const std::string& partial, const std::string& path);
// The same for file systems that cannot exchange two names: a crash inside leaves the old one as <path>.replaced.
void publish_in_two_steps(const std::string& partial, const std::string& path);

}  // namespace wyvern
