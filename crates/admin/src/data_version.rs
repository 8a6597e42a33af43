//! The data version of a file: a number that changes whenever the file's data changes.

use std::{os::fd::AsFd, path::Path};

use rustix::{
    fs::{FileType, Mode, OFlags, fdatasync, fstat, open},
    ioctl::{Updater, ioctl as call},
};
use sheen_wire::{
    Errno, Result,
    ioctl::{self, DataVersion},
};

use crate::{attributes::fid_of, os_errno};

/// Returns the data version of a file. `flush`: as [`data_version_of`].
///
/// # Errors
/// EISDIR: a directory. Otherwise as [`data_version_of`], and the errno of open(2).
pub fn data_version(path: &Path, flush: u32) -> Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::empty()).map_err(os_errno)?;
    if FileType::from_raw_mode(fstat(&file).map_err(os_errno)?.st_mode).is_dir() {
        return fid_of(&file).and(Err(Errno::EISDIR));
    }
    data_version_of(&file, flush)
}

/// Returns the data version of an open file. With a flush, first writes the dirty pages that local
/// programs made through memory mappings and that the kernel still has. `flush`: as
/// [`DataVersion::flags`].
///
/// # Errors
/// ENOTTY: not on a Sheen mount. Otherwise as [`ioctl::DATA_VERSION`].
pub fn data_version_of(file: impl AsFd, flush: u32) -> Result<u64> {
    fid_of(&file)?;
    if flush != 0 {
        fdatasync(&file).map_err(os_errno)?;
    }
    let mut version = DataVersion { flags: flush, ..DataVersion::default() };
    // SAFETY: the ioctl number encodes that the argument is read and written, and its size, which
    // is that of `DataVersion`.
    unsafe { call(&file, Updater::<{ ioctl::DATA_VERSION }, DataVersion>::new(&mut version)) }.map_err(os_errno)?;
    Ok(version.version)
}
