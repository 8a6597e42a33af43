//! Whether a file's bytes have changed: `llapi_get_data_version`.

use std::ffi::c_int;

use sheen_wire::{
    Errno,
    ioctl::{READ_FLUSH, WRITE_FLUSH},
};

use crate::{
    border::{file, or_minus_errno, put},
    sys,
};

/// A number that is another one after each change of an open file's bytes. With flags
/// (`LL_DV_RD_FLUSH`, `LL_DV_WR_FLUSH`) what mounts keep to be written is written before, and what
/// programs here have stored into mappings of it; else it does not count yet. 0, or an errno
/// negated.
///
/// -EINVAL: a flag that there is not, or a directory; -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_data_version(fd: c_int, version: *mut u64, flags: u64) -> c_int {
    or_minus_errno(|| {
        let known = u32::try_from(flags).ok().filter(|flags| flags & !(READ_FLUSH | WRITE_FLUSH) == 0);
        // SAFETY: the file is C's to keep open.
        let now = sys::data_version(unsafe { file(fd)? }, known.ok_or(Errno::EINVAL)?)?;
        unsafe { put(version, now) }.map(|()| 0)
    })
}
