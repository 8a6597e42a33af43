//! Attributes and layout of a file in one call: `llapi_get_lum_file`, `_dir` and similar functions.
//! They return a negated errno if they fail.
//!
//! Sizes are always those of the objects. There are no lazy sizes as in Lustre, which may be wrong.

use std::{
    ffi::{c_char, c_int, c_void},
    os::fd::{AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
    ptr,
};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};
use sheen_admin::{
    attributes::{self, At},
    os_errno,
};
use sheen_layout::codec::V1_BYTES;
use sheen_wire::{Errno, Result};

use crate::ffi::{self, file, optional, or_minus_errno, pathname};

const _: () = assert!(size_of::<Statx>() == 256);

/// `OBD_MD_FLBLKSZ`, `OBD_MD_FLRDEV`: attributes that statx(2) always returns.
const ALWAYS: u64 = 0x40 | 0x1_0000;
/// Attributes that statx(2) returned, and `OBD_MD_FL…` for each.
const VALID: [(StatxFlags, u64); 12] = [
    (StatxFlags::INO, 0x1),
    (StatxFlags::ATIME, 0x2),
    (StatxFlags::MTIME, 0x4),
    (StatxFlags::CTIME, 0x8),
    (StatxFlags::SIZE, 0x10),
    (StatxFlags::BLOCKS, 0x20),
    (StatxFlags::MODE, 0x80),
    (StatxFlags::TYPE, 0x100),
    (StatxFlags::UID, 0x200),
    (StatxFlags::GID, 0x400),
    (StatxFlags::NLINK, 0x2000),
    (StatxFlags::BTIME, 0x1000_0000_0000_0000),
];

/// Where the results are stored. Nothing is stored for a null pointer.
struct ResultBuffers {
    valid: *mut u64,
    stat: *mut Statx,
    lum: *mut c_void,
    lum_bytes: usize,
}

/// Stores attributes and layout of a path, even if it is a symbolic link. Any of the pointers may
/// be null. `valid`: the attributes (`OBD_MD_FL…`) that are stored. `lum` has room for `lum_bytes`
/// bytes; its `lmm_magic` is 0 if there is no layout.
///
/// -ENOENT, -ENOTTY; -EINVAL: less room than for `struct lov_user_md`; -EOVERFLOW: less room than
/// the layout needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_lum_file(
    path: *const c_char,
    valid: *mut u64,
    stat: *mut Statx,
    lum: *mut c_void,
    lum_bytes: usize,
) -> c_int {
    or_minus_errno(|| unsafe {
        store_attributes(At::Name(pathname(path)?), ResultBuffers { valid, stat, lum, lum_bytes })
    })
}

/// As [`llapi_get_lum_file`], for a directory, whose layout is its default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_lum_dir(
    path: *const c_char,
    valid: *mut u64,
    stat: *mut Statx,
    lum: *mut c_void,
    lum_bytes: usize,
) -> c_int {
    unsafe { llapi_get_lum_file(path, valid, stat, lum, lum_bytes) }
}

/// As [`llapi_get_lum_file`], for a name in an open directory. Without a name (null or empty): for
/// the open file itself. -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_lum_file_fd(
    dir: c_int,
    name: *const c_char,
    valid: *mut u64,
    stat: *mut Statx,
    lum: *mut c_void,
    lum_bytes: usize,
) -> c_int {
    or_minus_errno(|| unsafe {
        let (dir, room) = (file(dir)?, ResultBuffers { valid, stat, lum, lum_bytes });
        match optional(name) {
            Some(name) => store_attributes(At::Name(&place(dir, ffi::path(name))?), room),
            None => store_attributes(At::File(dir), room),
        }
    })
}

/// As [`llapi_get_lum_file`], for an open directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_lum_dir_fd(
    dir: c_int,
    valid: *mut u64,
    stat: *mut Statx,
    lum: *mut c_void,
    lum_bytes: usize,
) -> c_int {
    unsafe { llapi_get_lum_file_fd(dir, ptr::null(), valid, stat, lum, lum_bytes) }
}

/// Returns a path of a name in an open directory. Before kernel 6.13, no system call reads an
/// attribute of such a name.
fn place(dir: BorrowedFd<'_>, name: &Path) -> Result<PathBuf> {
    if name.is_absolute() {
        return Ok(name.to_owned());
    }
    rustix::io::fcntl_getfd(dir).map_err(os_errno)?;
    Ok(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// # Safety
/// Each pointer of `room` is null, or points to room for its value.
unsafe fn store_attributes(at: At<'_>, room: ResultBuffers) -> Result<c_int> {
    if !room.lum.is_null() && room.lum_bytes < V1_BYTES {
        return Err(Errno::EINVAL);
    }
    let found = attributes::layout(at)?.unwrap_or_else(|| vec![0; V1_BYTES]);
    if !room.lum.is_null() && found.len() > room.lum_bytes {
        return Err(Errno::EOVERFLOW);
    }
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = match at {
        At::Path(path) => rustix::fs::statx(CWD, path, AtFlags::empty(), wanted),
        At::Name(path) => rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted),
        At::File(file) => rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted),
    };
    let stat = stat.map_err(os_errno)?;
    // SAFETY: guaranteed by the caller. `found` fits, and belongs to this library.
    unsafe {
        if !room.lum.is_null() {
            ptr::copy_nonoverlapping(found.as_ptr(), room.lum.cast(), found.len());
        }
        if !room.valid.is_null() {
            room.valid.write_unaligned(valid(StatxFlags::from_bits_retain(stat.stx_mask)));
        }
        if !room.stat.is_null() {
            room.stat.write_unaligned(stat);
        }
    }
    Ok(0)
}

fn valid(filled: StatxFlags) -> u64 {
    VALID.iter().filter(|(flag, _)| filled.contains(*flag)).fold(ALWAYS, |bits, (_, bit)| bits | bit)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn get_lum_file_reports_the_attributes_that_statx_returned() {
        assert_eq!(valid(StatxFlags::empty()), 0x1_0040);
        assert_eq!(valid(StatxFlags::SIZE | StatxFlags::NLINK), 0x1_0040 | 0x10 | 0x2000);
    }

    #[test]
    fn name_in_an_open_directory_becomes_a_proc_path() {
        let dir = rustix::fs::open(c"/", OFlags::RDONLY, Mode::empty()).unwrap();
        let of = |name: &str| place(dir.as_fd(), Path::new(name)).unwrap();
        assert_eq!(of("f").to_str().unwrap(), format!("/proc/self/fd/{}/f", dir.as_raw_fd()));
        assert_eq!(of("/f").to_str(), Some("/f"));
    }
}
