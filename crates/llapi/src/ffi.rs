//! The boundary to C: pointers in, `errno` and return values out. No panic crosses it.
//!
//! Invariant: this module assumes of a pointer only what C can guarantee: it is null, or points to
//! what the header says.

use std::{
    ffi::{CStr, OsStr, c_char, c_int},
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    ptr,
};

use sheen_wire::{Errno, Result};

fn set_errno(e: Errno) {
    // SAFETY: the C library gives each thread its own `errno`, which lives as long as the thread.
    unsafe { *libc::__errno_location() = e.0 }
}

fn guard<T>(failed: impl FnOnce(Errno) -> T, body: impl FnOnce() -> Result<T>) -> T {
    // A panic is a defect of this library. It can leave only the layout in question half changed.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO));
    result.unwrap_or_else(|e| {
        set_errno(e);
        failed(e)
    })
}

/// Runs a function that returns -1 and sets `errno` if it fails.
pub fn or_minus_one(body: impl FnOnce() -> Result<c_int>) -> c_int {
    guard(|_| -1, body)
}

/// Runs a function that returns a negated errno if it fails. Sets `errno`, too.
pub fn or_minus_errno(body: impl FnOnce() -> Result<c_int>) -> c_int {
    guard(|e| -e.0, body)
}

/// Runs a function that returns a pointer, or null if it fails.
pub fn or_null<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    guard(|_| ptr::null_mut(), body)
}

/// Runs a function that returns `otherwise` if it fails.
pub fn or_else<T: Copy>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    guard(|_| otherwise, body)
}

/// Returns the value to which a pointer points. EINVAL: null.
///
/// # Safety
/// It is null, or points to a `T` that does not change during `'a`.
pub unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_ref() }.ok_or(Errno::EINVAL)
}

/// Returns the value to which a pointer points, as mutable. EINVAL: null.
///
/// # Safety
/// It is null, or points to a `T` that no other code uses during `'a`.
pub unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_mut() }.ok_or(Errno::EINVAL)
}

/// Writes to the memory to which a pointer points, which may be uninitialised. EINVAL: null.
///
/// # Safety
/// It is null, or points to room for a `T`.
pub unsafe fn put<T>(pointer: *mut T, value: T) -> Result<()> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: guaranteed by the caller. A C program may pack its structs, so no alignment is
    // assumed.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Returns a string. EINVAL: null.
///
/// # Safety
/// It is null, or points to bytes that end with a NUL and do not change during `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Returns a string that may be absent: null or empty.
///
/// # Safety
/// As [`text`].
pub unsafe fn optional<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(pointer) }.ok().filter(|text| !text.is_empty())
}

/// Returns the path that a string names. EINVAL: null.
///
/// # Safety
/// As [`text`].
pub unsafe fn pathname<'a>(pointer: *const c_char) -> Result<&'a Path> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(pointer) }.map(path)
}

/// Returns the path that a string names.
pub fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// Writes a string and its NUL into `room` bytes. EINVAL: null. `too_small`: the error if it does
/// not fit; nothing is written then.
///
/// # Safety
/// `pointer` is null, or points to room for that many bytes.
pub unsafe fn put_text(pointer: *mut c_char, room: usize, text: &[u8], too_small: Errno) -> Result<()> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    if text.len() >= room {
        return Err(too_small);
    }
    // SAFETY: guaranteed by the caller. `text` and the NUL need at most `room` bytes. They do not
    // overlap: `text` belongs to this library.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), pointer.cast(), text.len());
        pointer.add(text.len()).write(0);
    }
    Ok(())
}

/// Returns an open file. EBADF: the number is negative.
///
/// # Safety
/// It stays open during `'a`. If it does not, a system call fails; the number has no other use.
pub unsafe fn file<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: guaranteed by the caller, and the number is not -1.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> i32 {
        // SAFETY: as in `set_errno`.
        unsafe { *libc::__errno_location() }
    }

    #[test]
    fn errors_and_panics_become_c_return_values() {
        assert_eq!(or_minus_one(|| Ok(3)), 3);
        assert_eq!((or_minus_one(|| Err(Errno::ENOENT)), errno()), (-1, 2));
        assert_eq!((or_minus_errno(|| Err(Errno::ENOTTY)), errno()), (-25, 25));
        assert!(or_null::<u8>(|| Err(Errno::EINVAL)).is_null());
        assert_eq!((or_minus_one(|| panic!("said once")), errno()), (-1, 5));
    }

    #[test]
    fn put_text_writes_all_or_nothing() {
        let mut room = [7 as c_char; 4];
        let at = room.as_mut_ptr();
        // SAFETY: the buffer has the size that is passed.
        unsafe {
            assert_eq!(put_text(at, 4, b"four", Errno::ENAMETOOLONG), Err(Errno::ENAMETOOLONG));
            assert_eq!(put_text(ptr::null_mut(), 4, b"", Errno::ENAMETOOLONG), Err(Errno::EINVAL));
            assert_eq!(put_text(at, 0, b"", Errno::ENAMETOOLONG), Err(Errno::ENAMETOOLONG));
            assert_eq!(put_text(at, 4, b"abc", Errno::ENAMETOOLONG), Ok(()));
            assert_eq!(text(at).map(CStr::to_bytes), Ok(&b"abc"[..]));
        }
    }
}
