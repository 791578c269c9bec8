#include "trainer/hdf5.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "trainer/hdf5_driver.h"

namespace wyvern::h5 {
namespace {

static_assert(std::endian::native == std::endian::little, "every type here is stored little-endian and read in place");

constexpr int64_t kChunkBytes = 1 << 20;         // large enough that HDF5's work per chunk does not show
constexpr int64_t kContiguousBytes = 64 << 10;   // below it the chunk index would cost as much as the data

// HDF5's error stack, innermost first: what failed and, at the end, what that broke.
std::string error_text() {
  std::vector<std::string> lines;
  const auto collect = [](unsigned, const H5E_error2_t* e, void* out) -> herr_t {
    if (e->desc && *e->desc) static_cast<std::vector<std::string>*>(out)->push_back(e->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &lines);
  if (lines.size() > 3) lines.resize(3);
  return lines.empty() ? "HDF5 gives no reason" : fmt::format("{}", fmt::join(lines, "; "));
}

// `what` is made before the call that may fail: another HDF5 call would clear the stack.
[[noreturn]] void fail_hdf5(int code, const std::string& what) {
  const std::string reason = error_text();
  fail(code, "{}: {}", what, reason);
}

// Our Errors carry HDF5's text, so it must not print as well. A setting of each thread.
void prepare() {
  if (H5open() < 0) fail(kRuntime, "the HDF5 library cannot be initialised");
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string name_of_file(hid_t file) {
  char name[4096];
  return H5Fget_name(file, name, sizeof name) > 0 ? name : "HDF5 file";
}
std::string where(hid_t file, const std::string& path) { return name_of_file(file) + ": " + path; }

Handle properties(hid_t kind) { return {H5Pcreate(kind), H5Pclose, "HDF5 property list"}; }

Handle file_access() {
  Handle access = properties(H5P_FILE_ACCESS);
  check(H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110), "HDF5 version bounds");
  check(H5Pset_file_locking(access, false, true), "HDF5 file locking");
  return access;
}

Handle with_groups() {                             // link creation: groups on the way, UTF-8 names
  Handle links = properties(H5P_LINK_CREATE);
  check(H5Pset_create_intermediate_group(links, 1), "HDF5 intermediate groups");
  check(H5Pset_char_encoding(links, H5T_CSET_UTF8), "HDF5 link encoding");
  return links;
}

std::vector<hsize_t> sizes(const Shape& s) { return {s.begin(), s.end()}; }
Handle space_of(const Shape& s) {
  return {H5Screate_simple(int(s.size()), sizes(s).data(), nullptr), H5Sclose, "HDF5 dataspace " + to_string(s)};
}

Handle block_of(const Shape& shape, const Shape& corner, const Shape& count) {
  Handle space = space_of(shape);
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes(corner).data(), nullptr, sizes(count).data(), nullptr),
            "HDF5 block " + to_string(count) + " of " + to_string(shape));
  return space;
}

// At most kChunkBytes: whole rows, evenly many per chunk since the last one is stored in full; longer rows are cut along the next dim.
std::vector<hsize_t> chunk_of(const Tensor& t) {
  std::vector<hsize_t> chunk;
  int64_t below = t.bytes();
  for (int i = 0; i < t.ndim; i++) {
    below /= t.dim[i];
    const int64_t most = std::clamp<int64_t>(kChunkBytes / below, 1, t.dim[i]), chunks = (t.dim[i] + most - 1) / most;
    chunk.push_back(hsize_t((t.dim[i] + chunks - 1) / chunks));
  }
  return chunk;
}

Handle layout_of(const Tensor& t) {
  Handle layout = properties(H5P_DATASET_CREATE);
  check(H5Pset_obj_track_times(layout, false), "HDF5 object times");      // equal numbers, equal bytes
  check(H5Pset_fill_time(layout, H5D_FILL_TIME_NEVER), "HDF5 fill time");
  if (t.bytes() < kContiguousBytes) return layout;
  check(H5Pset_chunk(layout, t.ndim, chunk_of(t).data()), "HDF5 chunks");
  check(H5Pset_fletcher32(layout), "HDF5 checksums");
  return layout;
}

Handle text_type(size_t length) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "HDF5 text type");
  check(H5Tset_size(type, std::max<size_t>(length, 1)), "HDF5 text length");
  check(H5Tset_strpad(type, H5T_STR_NULLPAD), "HDF5 text padding");
  check(H5Tset_cset(type, H5T_CSET_UTF8), "HDF5 text encoding");
  return type;
}

// The padded buffer that a text of this type is written from: never empty, HDF5 has no strings of length 0.
std::string padded(const std::string& text, const std::string& what) {
  CHECK(text.find('\0') == std::string::npos, "{}: a text with a zero byte would come back shorter", what);
  return text.empty() ? std::string(1, '\0') : text;
}
std::string unpadded(std::string text) {
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

void attach(hid_t object, const std::string& name, hid_t type, const void* value, const std::string& what) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, what);
  const Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
  check(H5Awrite(attribute, type, value), what);
}
void attach_text(hid_t object, const std::string& name, const std::string& text, const std::string& what) {
  attach(object, name, text_type(text.size()), padded(text, what).data(), what);
}

Handle create_dataset(hid_t file, const std::string& path, DType dtype, const Shape& shape, hid_t layout) {
  const std::string what = where(file, path) + ": cannot be created";
  const Handle type = type_of(dtype), space = space_of(shape), links = with_groups();
  Handle set(H5Dcreate2(file, path.c_str(), type, space, links, layout, H5P_DEFAULT), H5Dclose, what);
  attach_text(set, "dtype", name_of(dtype), what);
  return set;
}

Handle open_dataset(hid_t file, const std::string& path) {
  const std::string what = where(file, path) + ": cannot be opened";
  const hid_t id = H5Dopen2(file, path.c_str(), H5P_DEFAULT);
  if (id < 0) fail_hdf5(kCorrupt, what);
  return {id, H5Dclose, what};
}

Handle group_of(hid_t file, const std::string& path) {
  const std::string what = where(file, path) + ": group cannot be made";
  const htri_t there = H5Lexists(file, path.c_str(), H5P_DEFAULT);
  check(there, what);
  if (there > 0) return {H5Gopen2(file, path.c_str(), H5P_DEFAULT), H5Gclose, what};
  return {H5Gcreate2(file, path.c_str(), with_groups(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose, what};
}

Stored describe(hid_t set, const std::string& path, const std::string& what) {
  const Handle space(H5Dget_space(set), H5Sclose, what), type(H5Dget_type(set), H5Tclose, what);
  std::vector<hsize_t> dims(size_t(std::max(0, H5Sget_simple_extent_ndims(space))));
  check(H5Sget_simple_extent_dims(space, dims.data(), nullptr), what);
  for (DType d : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::u16})
    if (H5Tequal(type, type_of(d)) > 0) return {path, d, Shape(dims.begin(), dims.end())};
  fail(kCorrupt, "{}: holds no type that this build knows (f64, f32, bf16, i32, u16)", what);
}

void list_into(hid_t file, const std::string& group, std::vector<Stored>& out) {
  const std::string what = where(file, group) + ": cannot be listed";
  const Handle here(H5Gopen2(file, group.c_str(), H5P_DEFAULT), H5Gclose, what);
  H5G_info_t info;
  check(H5Gget_info(here, &info), what);
  for (hsize_t i = 0; i < info.nlinks; i++) {
    char name[1024];
    if (H5Lget_name_by_idx(here, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) < 0) fail_hdf5(kCorrupt, what);
    const std::string path = group + "/" + name, object_what = where(file, path);
    const Handle object(H5Oopen(here, name, H5P_DEFAULT), H5Oclose, object_what);
    if (H5Iget_type(object) == H5I_GROUP) list_into(file, path, out);
    if (H5Iget_type(object) == H5I_DATASET) out.push_back(describe(object, path, object_what));
  }
}

}  // namespace

Handle::Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
  if (id < 0) fail_hdf5(kRuntime, what);
}

void Handle::close(const std::string& what) {
  const hid_t id = std::exchange(id_, -1);
  if (id >= 0) check(close_(id), what);
}

void check(herr_t status, const std::string& what, int code) {
  if (status < 0) fail_hdf5(code, what);
}

Handle create_file(const std::string& path) {
  prepare();
  const Handle access = file_access();
  check(H5Pset_driver(access, write_driver(), nullptr), "HDF5 driver");
  return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), close_written, path + ": cannot be created"};
}

Handle open_file(const std::string& path) {
  prepare();
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, file_access()), H5Fclose, path + ": cannot be opened"};
}

Handle type_of(DType dtype) {
  prepare();
  const hid_t base = dtype == DType::f64   ? H5T_IEEE_F64LE
                     : dtype == DType::i32 ? H5T_STD_I32LE
                     : dtype == DType::u16 ? H5T_STD_U16LE
                                           : H5T_IEEE_F32LE;
  Handle type(H5Tcopy(base), H5Tclose, "HDF5 type");
  if (dtype == DType::bf16) {                      // sign 1 | exponent 8, bias 127 | mantissa 7 with a hidden one
    check(H5Tset_fields(type, 15, 7, 8, 0, 7), "HDF5 bf16 fields");
    check(H5Tset_precision(type, 16), "HDF5 bf16 precision");
    check(H5Tset_size(type, 2), "HDF5 bf16 size");
    check(H5Tset_ebias(type, 127), "HDF5 bf16 exponent bias");
  }
  return type;
}

void write_tensor(hid_t file, const std::string& path, const Tensor& t) {
  const std::string what = where(file, path) + ": cannot be written";
  const Handle set = create_dataset(file, path, t.dtype, shape_of(t), layout_of(t));
  check(H5Dwrite(set, type_of(t.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, t.data), what);
  if (const int error = write_error(file)) fail(kRuntime, "{}: {}", what, std::strerror(error));     // no need to go on
}

void write_virtual(hid_t file, const std::string& path, DType dtype, const Shape& shape, const std::vector<Source>& sources) {
  const std::string what = where(file, path) + ": cannot be mapped to the rank files";
  const Handle layout = properties(H5P_DATASET_CREATE);
  if (dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16)
    with_float(dtype, [&]<class T>(T) {
      const T nan = T(std::numeric_limits<float>::quiet_NaN());
      check(H5Pset_fill_value(layout, type_of(dtype), &nan), "HDF5 fill value");
    });
  for (const Source& source : sources)
    for (const Slab& s : source.slabs)
      check(H5Pset_virtual(layout, block_of(shape, s.global, s.count), source.file.c_str(), path.c_str(),
                           block_of(source.shape, s.local, s.count)), what);
  create_dataset(file, path, dtype, shape, layout);
}

void write_text(hid_t file, const std::string& path, const std::string& text) {
  const std::string what = where(file, path) + ": cannot be written", bytes = padded(text, path);
  const Handle type = text_type(bytes.size()), space(H5Screate(H5S_SCALAR), H5Sclose, what), links = with_groups();
  const Handle set(H5Dcreate2(file, path.c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT), H5Dclose, what);
  check(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), what);
}

void write_attribute(hid_t file, const std::string& group, const std::string& name, int64_t value) {
  attach(group_of(file, group), name, H5T_STD_I64LE, &value, where(file, group) + "@" + name);
}
void write_attribute(hid_t file, const std::string& group, const std::string& name, const std::string& value) {
  attach_text(group_of(file, group), name, value, where(file, group) + "@" + name);
}

std::vector<Stored> list_tensors(hid_t file, const std::string& group) {
  std::vector<Stored> out;
  if (H5Lexists(file, group.c_str(), H5P_DEFAULT) > 0) list_into(file, group, out);
  return out;
}

void read_tensor(hid_t file, const std::string& path, const Tensor& out) {
  const std::string what = where(file, path);
  const Stored stored = describe(open_dataset(file, path), path, what);
  if (stored.shape != shape_of(out))
    fail(kCorrupt, "{}: is {} {}, wanted {}", what, name_of(stored.dtype), to_string(stored.shape), to_string(out));
  const Shape corner(stored.shape.size(), 0);
  read_block(file, path, corner, out, corner, stored.shape);
}

void read_block(hid_t file, const std::string& path, const Shape& from, const Tensor& out, const Shape& to, const Shape& count) {
  const std::string what = where(file, path);
  const Handle set = open_dataset(file, path);
  const Stored stored = describe(set, path, what);
  bool fits = stored.dtype == out.dtype && stored.shape.size() == from.size();
  for (size_t i = 0; fits && i < from.size(); i++) fits = from[i] + count[i] <= stored.shape[i];
  if (!fits)
    fail(kCorrupt, "{}: is {} {}, wanted {} {} at {}", what, name_of(stored.dtype), to_string(stored.shape), name_of(out.dtype),
         to_string(count), to_string(from));
  const Handle source = block_of(stored.shape, from, count), target = block_of(shape_of(out), to, count);
  check(H5Dread(set, type_of(out.dtype), target, source, H5P_DEFAULT, out.data), what + ": cannot be read", kCorrupt);
}

std::vector<Source> sources_of(hid_t file, const std::string& path) {
  const std::string what = where(file, path) + ": its map to the rank files cannot be read";
  const Handle set = open_dataset(file, path), layout(H5Dget_create_plist(set), H5Pclose, what);
  size_t n = 0;
  if (H5Pget_layout(layout) != H5D_VIRTUAL || H5Pget_virtual_count(layout, &n) < 0) fail_hdf5(kCorrupt, what);
  std::vector<Source> sources;
  for (size_t i = 0; i < n; i++) {
    char name[1024];
    check(int(H5Pget_virtual_filename(layout, i, name, sizeof name)), what, kCorrupt);
    const Handle global(H5Pget_virtual_vspace(layout, i), H5Sclose, what), local(H5Pget_virtual_srcspace(layout, i), H5Sclose, what);
    const size_t rank = size_t(std::max(0, H5Sget_simple_extent_ndims(local)));
    std::vector<hsize_t> from(rank), to(rank), last(rank);
    check(H5Sget_select_bounds(local, from.data(), last.data()), what, kCorrupt);
    check(H5Sget_select_bounds(global, to.data(), last.data()), what, kCorrupt);
    Slab slab{Shape(from.begin(), from.end()), Shape(to.begin(), to.end()), Shape(rank)};
    for (size_t d = 0; d < rank; d++) slab.count[d] = int64_t(last[d] - to[d]) + 1;
    if (sources.empty() || sources.back().file != name) sources.push_back({name, {}, {}});
    sources.back().slabs.push_back(slab);
  }
  return sources;
}

std::string read_text(hid_t file, const std::string& path) {
  const std::string what = where(file, path);
  const Handle set = open_dataset(file, path), type(H5Dget_type(set), H5Tclose, what);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) fail(kCorrupt, "{}: is not a text of fixed length", what);
  std::string text(H5Tget_size(type), '\0');
  check(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), what + ": cannot be read", kCorrupt);
  return unpadded(std::move(text));
}

int64_t read_integer(hid_t file, const std::string& group, const std::string& name) {
  const std::string what = where(file, group) + "@" + name;
  const hid_t id = H5Aopen_by_name(file, group.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  if (id < 0) fail_hdf5(kCorrupt, what);
  const Handle attribute(id, H5Aclose, what);
  int64_t value = 0;
  check(H5Aread(attribute, H5T_NATIVE_INT64, &value), what, kCorrupt);
  return value;
}

std::string read_string(hid_t file, const std::string& group, const std::string& name) {
  const std::string what = where(file, group) + "@" + name;
  const hid_t id = H5Aopen_by_name(file, group.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  if (id < 0) fail_hdf5(kCorrupt, what);
  const Handle attribute(id, H5Aclose, what), type(H5Aget_type(attribute), H5Tclose, what);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) fail(kCorrupt, "{}: is not a text of fixed length", what);
  std::string text(H5Tget_size(type), '\0');
  check(H5Aread(attribute, type, text.data()), what, kCorrupt);
  return unpadded(std::move(text));
}

}  // namespace wyvern::h5
