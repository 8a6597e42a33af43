//! Holes of an open file: `llapi_file_is_sparse`, `_data_seek`, `_hole_punch`. They work on any
//! file system.

use std::ffi::c_int;

use rustix::fs::FallocateFlags;
use sheen_admin::os_errno;
use sheen_wire::{Errno, Result};

use crate::{
    ffi::{file, or_else, or_minus_errno, put},
    mirror,
};

/// Bytes in a block of `st_blocks`.
const BLOCK_BYTES: i64 = 512;

/// Returns whether a file has fewer blocks than bytes. If it fails, returns false and sets `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_file_is_sparse(fd: c_int) -> bool {
    or_else(false, || {
        // SAFETY: C keeps the file open.
        let stat = rustix::fs::fstat(unsafe { file(fd)? }).map_err(os_errno)?;
        Ok(stat.st_blocks.saturating_mul(BLOCK_BYTES) < stat.st_size)
    })
}

/// Returns the start of the first data from `offset` on, and stores its length. If there is none,
/// returns the end of the file and stores 0. Or returns a negated errno: -EBADF, -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_data_seek(fd: c_int, offset: libc::off_t, length: *mut usize) -> libc::off_t {
    placed(|| {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let (start, len) = mirror::data(unsafe { file(fd)? }, offset)?;
        unsafe { put(length, usize::try_from(len).unwrap_or(usize::MAX))? };
        Ok(start)
    })
}

/// Makes a hole without changing the file's size. Returns 0, or a negated errno of fallocate(2).
#[unsafe(no_mangle)]
pub extern "C" fn llapi_hole_punch(fd: c_int, start: libc::off_t, length: usize) -> c_int {
    or_minus_errno(|| {
        let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // SAFETY: C keeps the file open.
        rustix::fs::fallocate(unsafe { file(fd)? }, how, start, length as u64).map_err(os_errno).map(|()| 0)
    })
}

/// Runs a function that returns an offset in a file or a negated errno.
pub(super) fn placed(body: impl FnOnce() -> Result<u64>) -> libc::off_t {
    let mut at = 0;
    let code = or_minus_errno(|| {
        at = libc::off_t::try_from(body()?).map_err(|_| Errno::EOVERFLOW)?;
        Ok(0)
    });
    if code < 0 { libc::off_t::from(code) } else { at }
}
