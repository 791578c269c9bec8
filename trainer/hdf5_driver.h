// The HDF5 file driver that files are written through. HDF5 1.10 does not survive a failing write: what could not be flushed
// stays in its caches, closing fails half-way, and the process crashes at exit. So this driver never fails a write: it keeps
// the first error, drops what comes after it, and the error is reported once everything is closed.
#pragma once
#include <hdf5.h>

namespace wyvern::h5 {

hid_t write_driver();                      // for H5Pset_driver
int write_error(hid_t file);               // errno of the first failure, 0 = none; `file` must use the driver
// Closes such a file; -1 with the reason on HDF5's error stack when any of its bytes did not reach the file.
herr_t close_written(hid_t file);

}  // namespace wyvern::h5
