#include "trainer/hdf5_driver.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace wyvern::h5 {
namespace {

struct File {
  H5FD_t base;                             // HDF5's part: first, since HDF5 sees the object as this
  int fd;
  haddr_t allocated, end;                  // what HDF5 calls eoa and eof
  int error;                               // errno of the first failed write
  int* report;                             // where close leaves `error`, or null
};

constexpr haddr_t kMaxAddress = haddr_t(INT64_MAX);

File* as_file(H5FD_t* f) { return reinterpret_cast<File*>(f); }
const File* as_file(const H5FD_t* f) { return reinterpret_cast<const File*>(f); }

void push_reason(int error) {
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_WRITEERROR, "%s", std::strerror(error));
}

H5FD_t* open_file(const char* name, unsigned flags, hid_t, haddr_t) {
  const int mode = (flags & H5F_ACC_RDWR ? O_RDWR : O_RDONLY) | (flags & H5F_ACC_CREAT ? O_CREAT : 0) |
                   (flags & H5F_ACC_TRUNC ? O_TRUNC : 0) | (flags & H5F_ACC_EXCL ? O_EXCL : 0);
  const int fd = ::open(name, mode | O_CLOEXEC, 0666);
  const off_t end = fd < 0 ? -1 : ::lseek(fd, 0, SEEK_END);
  if (end < 0) {
    push_reason(errno);
    if (fd >= 0) ::close(fd);
    return nullptr;
  }
  auto* f = new File{};
  f->fd = fd;
  f->end = haddr_t(end);
  return &f->base;
}

herr_t close_file(H5FD_t* base) {
  File* f = as_file(base);
  if (::close(f->fd) != 0 && f->error == 0) f->error = errno;      // network file systems report late writes here
  if (f->report) *f->report = f->error;
  delete f;
  return 0;
}

herr_t features(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t allocated(const H5FD_t* f, H5FD_mem_t) { return as_file(f)->allocated; }
haddr_t end_of(const H5FD_t* f, H5FD_mem_t) { return as_file(f)->end; }
herr_t set_allocated(H5FD_t* f, H5FD_mem_t, haddr_t address) {
  as_file(f)->allocated = address;
  return 0;
}
herr_t handle_of(H5FD_t* f, hid_t, void** handle) {
  *handle = f;
  return 0;
}

herr_t read_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t at, size_t size, void* buffer) {
  auto* out = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t n = ::pread(as_file(base)->fd, out, size, off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return push_reason(errno), -1;
    if (n == 0) {                          // beyond the end: zeros, as HDF5's own drivers do
      std::memset(out, 0, size);
      break;
    }
    out += n, at += haddr_t(n), size -= size_t(n);
  }
  return 0;
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t at, size_t size, const void* buffer) {
  File* f = as_file(base);
  const auto* in = static_cast<const char*>(buffer);
  if (at + size > f->end) f->end = at + size;
  while (size > 0 && f->error == 0) {
    const ssize_t n = ::pwrite(f->fd, in, size, off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) f->error = errno;
    else in += n, at += haddr_t(n), size -= size_t(n);
  }
  return 0;
}

herr_t truncate_file(H5FD_t* base, hid_t, hbool_t) {
  File* f = as_file(base);
  if (f->allocated == f->end) return 0;
  if (f->error == 0 && ::ftruncate(f->fd, off_t(f->allocated)) != 0) f->error = errno;
  f->end = f->allocated;
  return 0;
}

File* file_of(hid_t file) {
  void* f = nullptr;
  return H5Fget_vfd_handle(file, H5P_DEFAULT, &f) < 0 ? nullptr : static_cast<File*>(f);
}

}  // namespace

hid_t write_driver() {
  static const hid_t id = [] {
    constexpr H5FD_mem_t kFreeLists[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    static H5FD_class_t driver = {};       // HDF5 keeps a pointer to it
#if H5_VERSION_GE(1, 13, 2)
    driver.version = H5FD_CLASS_VERSION;
    driver.value = H5FD_class_value_t(600);   // the range free for own drivers begins at 512
#endif
    driver.name = "wyvern";
    driver.maxaddr = kMaxAddress;
    driver.fc_degree = H5F_CLOSE_STRONG;
    driver.open = open_file;
    driver.close = close_file;
    driver.query = features;
    driver.get_eoa = allocated;
    driver.set_eoa = set_allocated;
    driver.get_eof = end_of;
    driver.get_handle = handle_of;
    driver.read = read_bytes;
    driver.write = write_bytes;
    driver.truncate = truncate_file;
    std::memcpy(driver.fl_map, kFreeLists, sizeof kFreeLists);
    return H5FDregister(&driver);
  }();
  return id;
}

int write_error(hid_t file) {
  const File* f = file_of(file);
  return f ? f->error : EBADF;
}

herr_t close_written(hid_t file) {
  int error = 0;
  if (File* f = file_of(file)) f->report = &error;
  const herr_t closed = H5Fclose(file);
  if (error == 0) return closed;
  push_reason(error);
  return -1;
}

}  // namespace wyvern::h5
