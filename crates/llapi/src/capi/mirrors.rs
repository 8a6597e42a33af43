//! Single mirrors of a file: `llapi_mirror_set`, `_read`, `_write`, `_copy` and their like, and
//! which are stale. They return an errno negated.
//!
//! A mirror is written under a lease alone ([`super::leases`]): else, and where the lease was lost,
//! -EBUSY.

use std::{
    ffi::{c_int, c_uint, c_void},
    os::fd::BorrowedFd,
    slice,
};

use rustix::fs::FallocateFlags;
use sheen_wire::{Errno, Result};

use crate::{
    border::{exclusive, file, or_else, or_minus_errno, put, shared},
    capi::sparse,
    layout::{Component, Layout},
    mirror, sys,
};

/// Most mirrors that one call names.
const IDS_MAX: usize = 1 << 16;

/// `struct llapi_resync_comp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ResyncComponent {
    start: u64,
    end: u64,
    mirror: u32,
    id: u32,
    synced: bool,
}

impl From<&Component> for ResyncComponent {
    fn from(c: &Component) -> ResyncComponent {
        ResyncComponent { start: c.start, end: c.end, mirror: c.mirror_id(), id: c.id, synced: false }
    }
}

fn id(id: c_uint) -> Result<u16> {
    u16::try_from(id).map_err(|_| Errno::EINVAL)
}

/// The mirror `id` of an open file, for what is done to it.
///
/// # Safety
/// As [`file`].
unsafe fn named<'a>(fd: c_int, id: c_uint) -> Result<(BorrowedFd<'a>, u16)> {
    let id = self::id(id)?;
    // 0 would be the file as a whole.
    if id == 0 { Err(Errno::EINVAL) } else { Ok((unsafe { file(fd)? }, id)) }
}

/// From now on an open file is that mirror, stale or not; 0: the file again. It is to be opened
/// with `O_DIRECT`, or for writing.
///
/// -EINVAL: there is no such mirror, or it was opened otherwise. -EPERM: it is open for writing,
/// and somebody else's. -ENOTTY, -EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_set(fd: c_int, mirror: c_uint) -> c_int {
    // SAFETY: the file is C's to keep open.
    or_minus_errno(|| sys::use_mirror(unsafe { file(fd)? }, id(mirror)?).map(|()| 0))
}

/// The file again.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_clear(fd: c_int) -> c_int {
    llapi_mirror_set(fd, 0)
}

/// Reads from a mirror: how many bytes, fewer than asked for at the end of the file alone. As
/// [`llapi_mirror_set`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_read(
    fd: c_int,
    mirror: c_uint,
    buffer: *mut c_void,
    count: usize,
    at: libc::off_t,
) -> isize {
    sized(|| {
        let (file, id) = unsafe { named(fd, mirror)? };
        let (count, at) = (fits(count)?, offset(at)?);
        if buffer.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and of that many bytes, as C promises.
        let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), count) };
        mirror::read(file, id, buffer, at)
    })
}

/// Writes to a mirror: `count`. As [`llapi_mirror_set`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_write(
    fd: c_int,
    mirror: c_uint,
    bytes: *const c_void,
    count: usize,
    at: libc::off_t,
) -> isize {
    sized(|| {
        let (file, id) = unsafe { named(fd, mirror)? };
        let (count, at) = (fits(count)?, offset(at)?);
        if bytes.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and of that many bytes, as C promises.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), count) };
        mirror::write(file, id, bytes, at).map(|()| count)
    })
}

/// Sets where a mirror ends.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_truncate(fd: c_int, mirror: c_uint, length: libc::off_t) -> c_int {
    or_minus_errno(|| {
        // SAFETY: the file is C's to keep open.
        let (file, id) = unsafe { named(fd, mirror)? };
        mirror::truncate(file, id, offset(length)?).map(|()| 0)
    })
}

/// Makes a hole in a mirror.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_punch(fd: c_int, mirror: c_uint, start: libc::off_t, length: usize) -> c_int {
    or_minus_errno(|| {
        // SAFETY: the file is C's to keep open.
        let (file, id) = unsafe { named(fd, mirror)? };
        let (start, length) = (offset(start)?, length as u64);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        mirror::write_to(file, id, || rustix::fs::fallocate(file, how, start, length).map_err(sys::errno)).map(|()| 0)
    })
}

/// The first data of a mirror from `at` on, whose length is stored; where there is none the end of
/// the file, and 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_data_seek(
    fd: c_int,
    mirror: c_uint,
    at: libc::off_t,
    length: *mut usize,
) -> libc::off_t {
    sparse::placed(|| {
        let (file, id) = unsafe { named(fd, mirror)? };
        let at = offset(at)?;
        let (start, len) = mirror::as_mirror(file, id, || mirror::data(file, at))?;
        unsafe { put(length, usize::try_from(len).unwrap_or(usize::MAX))? };
        Ok(start)
    })
}

/// Whether a mirror has holes. False where it cannot be told, with `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_is_sparse(fd: c_int, mirror: c_uint) -> bool {
    or_else(false, || {
        // SAFETY: the file is C's to keep open.
        let (file, id) = unsafe { named(fd, mirror)? };
        mirror::as_mirror(file, id, || {
            let end = rustix::fs::fstat(file).map_err(sys::errno)?.st_size;
            let (start, len) = mirror::data(file, 0)?;
            Ok(start > 0 || start + len < u64::try_from(end).unwrap_or(0))
        })
    })
}

/// Makes mirrors hold what another one does, whole and with its holes. How many are done, which are
/// the first of `targets` then; or why none is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_copy_many(fd: c_int, source: u16, targets: *mut u16, count: usize) -> isize {
    sized(|| {
        let (file, source) = unsafe { named(fd, source.into())? };
        if count == 0 {
            return Ok(0);
        }
        if targets.is_null() || count > IDS_MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and of that many, as C promises.
        let given = unsafe { slice::from_raw_parts_mut(targets, count) };
        let mut targets = given.to_vec();
        if targets.contains(&source) {
            return Err(Errno::EINVAL);
        }
        mirror::copy(file, Some(source), &mut targets)?;
        given.iter_mut().zip(&targets).for_each(|(place, id)| *place = *id);
        Ok(targets.len())
    })
}

/// Copies bytes from one mirror (0: the file) to another: how many, fewer than asked for at the end
/// of the file alone, where the copy ends then, too.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_copy(fd: c_int, source: c_uint, target: c_uint, at: libc::off_t, count: usize) -> c_int {
    let copied = sized(|| {
        // SAFETY: the file is C's to keep open.
        let (file, target) = unsafe { named(fd, target)? };
        let (source, at) = (id(source)?, offset(at)?);
        if source == target {
            return Err(Errno::EINVAL);
        }
        mirror::copy_range(file, source, target, at, count as u64).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    });
    c_int::try_from(copied).unwrap_or(c_int::MAX)
}

/// A mirror of a layout that is up to date and has the bytes from `start` on; up to where, at most
/// `end`, is stored. -ENOENT: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_find(layout: *const Layout, start: u64, end: u64, to: *mut u64) -> c_int {
    or_minus_errno(|| {
        let (id, covered) = unsafe { shared(layout)? }.find_mirror(start, end).ok_or(Errno::ENOENT)?;
        unsafe { put(to, covered)? };
        Ok(id as c_int)
    })
}

/// The components of a layout that have to be brought up to date, of these mirrors or (`count` 0)
/// of all but those that are marked `nosync`: how many. -EINVAL: there are more than there is room
/// for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_find_stale(
    layout: *const Layout,
    found: *mut ResyncComponent,
    room: usize,
    mirrors: *const u16,
    count: c_int,
) -> c_int {
    or_minus_errno(|| {
        let count = usize::try_from(count).ok().filter(|n| *n <= IDS_MAX).ok_or(Errno::EINVAL)?;
        if count > 0 && mirrors.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null where there are any, and of that many, as C promises.
        let mirrors = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(mirrors, count) } };
        let stale = unsafe { shared(layout)? }.stale_components(mirrors);
        if stale.len() > room {
            return Err(Errno::EINVAL);
        }
        for (i, c) in stale.iter().enumerate() {
            // SAFETY: below the room that C says there is.
            unsafe { put(found.wrapping_add(i), ResyncComponent::from(*c))? };
        }
        c_int::try_from(stale.len()).map_err(|_| Errno::EINVAL)
    })
}

/// Brings the mirrors of these components up to date, each as a whole (the range is of no account),
/// and marks the components of which that was done. -EUCLEAN: no mirror to copy from. 0 if one was
/// done, or why none was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_resync_many(
    fd: c_int,
    layout: *mut Layout,
    components: *mut ResyncComponent,
    count: c_int,
    _start: u64,
    _end: u64,
) -> c_int {
    or_minus_errno(|| {
        let file = unsafe { file(fd)? };
        unsafe { exclusive(layout)? };
        let count = usize::try_from(count).ok().filter(|n| *n <= IDS_MAX).ok_or(Errno::EINVAL)?;
        if components.is_null() || count == 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and of that many, as C promises.
        let components = unsafe { slice::from_raw_parts_mut(components, count) };
        let mut mirrors = components.iter().map(|c| id(c.mirror)).collect::<Result<Vec<_>>>()?;
        mirrors.sort_unstable();
        mirrors.dedup();
        mirror::copy(file, None, &mut mirrors)?;
        for c in components {
            c.synced = mirrors.iter().any(|done| u32::from(*done) == c.mirror);
        }
        Ok(0)
    })
}

/// For functions that return a count of bytes or an errno negated.
fn sized(body: impl FnOnce() -> Result<usize>) -> isize {
    let mut done = 0;
    let code = or_minus_errno(|| {
        done = isize::try_from(body()?).unwrap_or(isize::MAX);
        Ok(0)
    });
    if code < 0 { code as isize } else { done }
}

/// EINVAL: no buffer is so large.
fn fits(count: usize) -> Result<usize> {
    if isize::try_from(count).is_ok() { Ok(count) } else { Err(Errno::EINVAL) }
}

fn offset(at: libc::off_t) -> Result<u64> {
    u64::try_from(at).map_err(|_| Errno::EINVAL)
}
