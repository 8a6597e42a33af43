//! The data version, by which a program detects that a file's data has changed, and flushes of
//! dirty data: `llapi_get_data_version`, `llapi_file_flush`, `llapi_fsync`.

use std::ffi::c_int;

use sheen_admin::{data_version_of, os_errno};
use sheen_wire::{
    Errno,
    ioctl::{READ_FLUSH, WRITE_FLUSH},
};

use crate::ffi::{file, or_minus_errno, put};

/// Stores a number that differs after each change of an open file's data. With flags
/// (`LL_DV_RD_FLUSH`, `LL_DV_WR_FLUSH`), mounts first write their dirty data, and data that
/// programs on this host stored into mappings of the file. Without flags, such data does not count
/// yet. Returns 0, or a negated errno.
///
/// -EINVAL: an unknown flag, or a directory; -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_data_version(fd: c_int, version: *mut u64, flags: u64) -> c_int {
    or_minus_errno(|| {
        let known = u32::try_from(flags).ok().filter(|flags| flags & !(READ_FLUSH | WRITE_FLUSH) == 0);
        // SAFETY: C keeps the file open.
        let now = data_version_of(unsafe { file(fd)? }, known.ok_or(Errno::EINVAL)?)?;
        unsafe { put(version, now) }.map(|()| 0)
    })
}

/// Makes all mounts write their dirty data of an open file. Returns 0, or a negated errno. -EINVAL:
/// a directory; -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_file_flush(fd: c_int) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| data_version_of(unsafe { file(fd)? }, WRITE_FLUSH).map(|_| 0))
}

/// As fsync(2), but returns a negated errno.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_fsync(fd: c_int) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| rustix::fs::fsync(unsafe { file(fd)? }).map_err(os_errno).map(|()| 0))
}
