//! `llapi_swap_layouts`, `llapi_fswap_layouts`: swap the data of two files. They return a negated
//! errno if they fail.
//!
//! Lustre also swaps the times, unless flags say otherwise, and swaps nothing if given data
//! versions differ from those of the files. Here the times never change. A check of data versions
//! is not supported and is refused.

use std::ffi::{c_char, c_int};

use rustix::fs::{Mode, OFlags};
use sheen_admin::{os_errno, swap_layouts_of};
use sheen_wire::{Errno, Result};

use crate::{
    capi::messages,
    ffi::{file, or_minus_errno, text},
};

/// `SWAP_LAYOUTS_KEEP_MTIME`, `SWAP_LAYOUTS_KEEP_ATIME`: always in effect.
const KEEP: u64 = 1 << 2 | 1 << 3;

/// Swaps the layouts of two files of one mount. The versions are ignored.
///
/// Errors of open(2) for writing of either file; -ENOTTY: not on a mount; -EXDEV: on different
/// mounts. Otherwise as [`llapi_fswap_layouts`].
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
            opened.map_err(os_errno).inspect_err(|e| {
                messages::say(messages::ERROR, Some(*e), &format!("error: cannot open '{}' for write", shown(path)));
            })
        };
        let (first, second) = (opened(one)?, opened(other)?);
        let done = check(flags).and_then(|()| swap_layouts_of(&first, &second));
        done.map(|()| 0).inspect_err(|e| {
            let what = format!("error: cannot swap layout between '{}' and '{}'", shown(one), shown(other));
            messages::say(messages::ERROR, Some(*e), &what);
        })
    })
}

/// Swaps the layouts of two open files of one mount.
///
/// -EACCES: the caller may not write to both. -EPERM: they belong to different users or groups.
/// -EINVAL: one is not a regular file. -EOPNOTSUPP: one is mirrored or has data on the MDT, or
/// flags request a check of versions. -EBUSY: a client holds a group lock on one, or adds objects
/// to one all the time. If it fails, nothing has changed.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_fswap_layouts(fd1: c_int, fd2: c_int, _version1: u64, _version2: u64, flags: u64) -> c_int {
    or_minus_errno(|| {
        check(flags)?;
        // SAFETY: C keeps the files open.
        swap_layouts_of(unsafe { file(fd1)? }, unsafe { file(fd2)? }).map(|()| 0)
    })
}

/// As [`llapi_fswap_layouts`] under a group lock on both files, which excludes other writers. Here
/// a swap excludes them anyway. Only group 0 (none) is therefore accepted; others are -EOPNOTSUPP.
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
