//! Single mirrors of a file: `llapi_mirror_set`, `_read`, `_write`, `_copy` and similar functions,
//! and the search for stale mirrors. They return a negated errno if they fail.
//!
//! A mirror is written only under a lease ([`super::leases`]). Without a lease, or after it has
//! ended, a write fails with -EBUSY.

use std::{
    ffi::{c_int, c_uint, c_void},
    os::fd::BorrowedFd,
    slice,
};

use rustix::fs::FallocateFlags;
use sheen_admin::{
    mirror::{as_mirror, read},
    open_file::use_mirror,
    os_errno,
};
use sheen_wire::{Errno, Result};

use crate::{
    capi::sparse,
    ffi::{exclusive, file, or_else, or_minus_errno, put, shared},
    layout::{Component, Layout},
    mirror,
};

/// Largest number of mirrors in one call.
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

/// Returns an open file and the id of its mirror, for an operation on that mirror.
///
/// # Safety
/// As [`file`].
unsafe fn named<'a>(fd: c_int, id: c_uint) -> Result<(BorrowedFd<'a>, u16)> {
    let id = self::id(id)?;
    // 0 would mean the whole file.
    if id == 0 { Err(Errno::EINVAL) } else { Ok((unsafe { file(fd)? }, id)) }
}

/// Returns file, mirror and offset of a read or write of `count` bytes at `buffer`. EINVAL: null,
/// or no buffer is so large.
///
/// # Safety
/// As [`file`].
unsafe fn transfer<'a>(
    fd: c_int,
    mirror: c_uint,
    buffer: *const c_void,
    count: usize,
    at: libc::off_t,
) -> Result<(BorrowedFd<'a>, u16, u64)> {
    // SAFETY: guaranteed by the caller.
    let (file, id) = unsafe { named(fd, mirror)? };
    let at = offset(at)?;
    if buffer.is_null() || isize::try_from(count).is_err() {
        return Err(Errno::EINVAL);
    }
    Ok((file, id, at))
}

/// Makes an open file refer to one of its mirrors from now on, stale or not; 0: to the whole file
/// again. The file must be open with `O_DIRECT`, or for writing.
///
/// -EINVAL: no such mirror, or the file was opened otherwise. -EPERM: it is open for writing, and
/// belongs to another user. -ENOTTY, -EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_set(fd: c_int, mirror: c_uint) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| use_mirror(unsafe { file(fd)? }, id(mirror)?).map(|()| 0))
}

/// Makes an open file refer to the whole file again.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_clear(fd: c_int) -> c_int {
    llapi_mirror_set(fd, 0)
}

/// Reads from a mirror. Returns the number of bytes, which is less than `count` only at the end of
/// the file. Errors as [`llapi_mirror_set`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_read(
    fd: c_int,
    mirror: c_uint,
    buffer: *mut c_void,
    count: usize,
    at: libc::off_t,
) -> isize {
    sized(|| {
        let (file, id, at) = unsafe { transfer(fd, mirror, buffer, count, at)? };
        // SAFETY: not null, and C guarantees that many bytes.
        let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), count) };
        read(file, id, buffer, at)
    })
}

/// Writes to a mirror. Returns `count`. Errors as [`llapi_mirror_set`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_write(
    fd: c_int,
    mirror: c_uint,
    bytes: *const c_void,
    count: usize,
    at: libc::off_t,
) -> isize {
    sized(|| {
        let (file, id, at) = unsafe { transfer(fd, mirror, bytes, count, at)? };
        // SAFETY: not null, and C guarantees that many bytes.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), count) };
        mirror::write(file, id, bytes, at).map(|()| count)
    })
}

/// Sets the size of a mirror.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_truncate(fd: c_int, mirror: c_uint, length: libc::off_t) -> c_int {
    or_minus_errno(|| {
        // SAFETY: C keeps the file open.
        let (file, id) = unsafe { named(fd, mirror)? };
        mirror::truncate(file, id, offset(length)?).map(|()| 0)
    })
}

/// Makes a hole in a mirror.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_punch(fd: c_int, mirror: c_uint, start: libc::off_t, length: usize) -> c_int {
    or_minus_errno(|| {
        // SAFETY: C keeps the file open.
        let (file, id) = unsafe { named(fd, mirror)? };
        let (start, length) = (offset(start)?, length as u64);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        mirror::write_to(file, id, || rustix::fs::fallocate(file, how, start, length).map_err(os_errno)).map(|()| 0)
    })
}

/// Returns the start of the first data of a mirror from `at` on, and stores its length. If there is
/// none, returns the end of the file and stores 0.
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
        let (start, len) = as_mirror(file, id, || mirror::data(file, at))?;
        unsafe { put(length, usize::try_from(len).unwrap_or(usize::MAX))? };
        Ok(start)
    })
}

/// Returns whether a mirror has holes. If it fails, returns false and sets `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_is_sparse(fd: c_int, mirror: c_uint) -> bool {
    or_else(false, || {
        // SAFETY: C keeps the file open.
        let (file, id) = unsafe { named(fd, mirror)? };
        as_mirror(file, id, || {
            let end = rustix::fs::fstat(file).map_err(os_errno)?.st_size;
            let (start, len) = mirror::data(file, 0)?;
            Ok(start > 0 || start + len < u64::try_from(end).unwrap_or(0))
        })
    })
}

/// Copies a whole mirror, with its holes, to others. Returns the number of mirrors that were
/// copied, which are then the first ones in `targets`. Returns an error only if none was copied.
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
        // SAFETY: not null, and C guarantees that many elements.
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

/// Copies bytes from one mirror (0: the file) to another. Returns their number. If it is less than
/// `count`, the file ended, and the copy ends there, too.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_mirror_copy(fd: c_int, source: c_uint, target: c_uint, at: libc::off_t, count: usize) -> c_int {
    let copied = sized(|| {
        // SAFETY: C keeps the file open.
        let (file, target) = unsafe { named(fd, target)? };
        let (source, at) = (id(source)?, offset(at)?);
        if source == target {
            return Err(Errno::EINVAL);
        }
        mirror::copy_range(file, source, target, at, count as u64).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    });
    c_int::try_from(copied).unwrap_or(c_int::MAX)
}

/// Returns a mirror of a layout that is up to date and has the bytes from `start`. Stores the end
/// of the bytes that it has, at most `end`. -ENOENT: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_mirror_find(layout: *const Layout, start: u64, end: u64, to: *mut u64) -> c_int {
    or_minus_errno(|| {
        let (id, covered) = unsafe { shared(layout)? }.find_mirror(start, end).ok_or(Errno::ENOENT)?;
        unsafe { put(to, covered)? };
        Ok(id as c_int)
    })
}

/// Stores the components of a layout that a resync must bring up to date. `count` 0: of all mirrors
/// that are not marked `nosync`; else of these mirrors. Returns their number. -EINVAL: they do not
/// fit.
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
        // SAFETY: not null if there are any, and C guarantees that many elements.
        let mirrors = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(mirrors, count) } };
        let stale = unsafe { shared(layout)? }.stale_components(mirrors);
        if stale.len() > room {
            return Err(Errno::EINVAL);
        }
        for (i, c) in stale.iter().enumerate() {
            // SAFETY: within the room that C guarantees.
            unsafe { put(found.wrapping_add(i), ResyncComponent::from(*c))? };
        }
        c_int::try_from(stale.len()).map_err(|_| Errno::EINVAL)
    })
}

/// Brings the mirrors of these components up to date, each as a whole; the range is ignored. Marks
/// the components that are up to date. Returns 0 if at least one mirror was copied, else an error.
/// -EUCLEAN: there is no mirror to copy from.
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
        // SAFETY: not null, and C guarantees that many elements.
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

/// Runs a function that returns a count of bytes or a negated errno.
fn sized(body: impl FnOnce() -> Result<usize>) -> isize {
    let mut done = 0;
    let code = or_minus_errno(|| {
        done = isize::try_from(body()?).unwrap_or(isize::MAX);
        Ok(0)
    });
    if code < 0 { code as isize } else { done }
}

fn offset(at: libc::off_t) -> Result<u64> {
    u64::try_from(at).map_err(|_| Errno::EINVAL)
}
