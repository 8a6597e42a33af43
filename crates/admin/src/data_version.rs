//! The data version of a file: a number that changes whenever the file's data changes.

use std::path::Path;

use rustix::{
    fs::{FileType, Mode, OFlags, fdatasync, fstat, open},
    ioctl::{Updater, ioctl as call},
};
use sheen_wire::{
    Errno, Result,
    ioctl::{self, DataVersion},
};

use crate::{fid::fid_of, os_errno};

/// Returns the data version of a file. With a flush, first writes the dirty pages that local
/// programs made through memory mappings and that the kernel still has. `flush`: as
/// [`DataVersion::flags`].
///
/// # Errors
/// EISDIR: a directory. ENOTTY: not on a Sheen mount. Otherwise the errno of the failed system
/// call.
pub fn data_version(path: &Path, flush: u32) -> Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::empty()).map_err(os_errno)?;
    fid_of(&file)?;
    if FileType::from_raw_mode(fstat(&file).map_err(os_errno)?.st_mode).is_dir() {
        return Err(Errno::EISDIR);
    }
    if flush != 0 {
        fdatasync(&file).map_err(os_errno)?;
    }
    let mut version = DataVersion { flags: flush, ..DataVersion::default() };
    // SAFETY: the ioctl number encodes that the argument is read and written, and its size, which
    // is that of `DataVersion`.
    let asking = unsafe { Updater::<{ ioctl::DATA_VERSION }, DataVersion>::new(&mut version) };
    // SAFETY: as above.
    unsafe { call(&file, asking) }.map_err(os_errno)?;
    Ok(version.version)
}
