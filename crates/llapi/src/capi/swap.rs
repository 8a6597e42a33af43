//! `llapi_swap_layouts`, `llapi_fswap_layouts`: two files exchange their bytes. They return an
//! errno negated.
//!
//! Lustre exchanges times as well unless it is told to keep them, and does nothing where data
//! versions that it is given are not those of the files. Here times always stay; a version cannot
//! be asked for, so one that is to be checked is refused.

use std::{
    ffi::{c_char, c_int},
    os::fd::AsFd,
};

use rustix::fs::{Mode, OFlags};
use sheen_wire::{Errno, Result};

use crate::{
    border::{file, or_minus_errno, text},
    capi::messages,
    sys,
};

/// `SWAP_LAYOUTS_KEEP_MTIME`, `SWAP_LAYOUTS_KEEP_ATIME`: what happens anyway.
const KEEP: u64 = 1 << 2 | 1 << 3;

/// Exchanges the layouts of two files of one mount. The versions are of no account.
///
/// What open(2) says of either for writing; -ENOTTY: not on a mount; -EXDEV: on different ones. As
/// [`llapi_fswap_layouts`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_swap_layouts(
    one: *const c_char,
    other: *const c_char,
    _version1: u64,
    _version2: u64,
    flags: u64,
) -> c_int {
    or_minus_errno(|| {
        let (one, other) = unsafe { (text(one)?, text(other)?) };
        let opened = |path| {
            let opened = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty());
            opened.map_err(sys::errno).inspect_err(|e| {
                messages::say(messages::ERROR, Some(*e), &format!("error: cannot open '{}' for write", shown(path)));
            })
        };
        let (first, second) = (opened(one)?, opened(other)?);
        let done = check(flags).and_then(|()| sys::swap_layouts(first.as_fd(), second.as_fd()));
        done.map(|()| 0).inspect_err(|e| {
            let what = format!("error: cannot swap layout between '{}' and '{}'", shown(one), shown(other));
            messages::say(messages::ERROR, Some(*e), &what);
        })
    })
}

/// The same of two open files.
///
/// -EACCES: the caller may not write to both; -EPERM: they are not of the same user and group;
/// -EINVAL: one is no regular file; -EOPNOTSUPP: one is mirrored, or flags say that versions are
/// checked; -EBUSY: somebody does not let go of one. Nothing is changed then.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_fswap_layouts(fd1: c_int, fd2: c_int, _version1: u64, _version2: u64, flags: u64) -> c_int {
    or_minus_errno(|| {
        check(flags)?;
        // SAFETY: the files are C's to keep open.
        sys::swap_layouts(unsafe { file(fd1)? }, unsafe { file(fd2)? }).map(|()| 0)
    })
}

/// The same with a group's lock on both, with which nobody else comes in between: here nobody does
/// anyway, so that only 0, no group, is taken (else -EOPNOTSUPP).
#[unsafe(no_mangle)]
pub extern "C" fn llapi_fswap_layouts_grouplock(
    fd1: c_int,
    fd2: c_int,
    version1: u64,
    version2: u64,
    group: c_int,
    flags: u64,
) -> c_int {
    if group != 0 {
        return or_minus_errno(|| Err(Errno::EOPNOTSUPP));
    }
    llapi_fswap_layouts(fd1, fd2, version1, version2, flags)
}

fn check(flags: u64) -> Result<()> {
    if flags & !KEEP == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

fn shown(path: &std::ffi::CStr) -> std::borrow::Cow<'_, str> {
    path.to_string_lossy()
}
