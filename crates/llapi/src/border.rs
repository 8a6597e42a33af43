//! The border to C: pointers in, `errno` and return values out, panics kept inside.
//!
//! Invariant: nothing here believes more of a pointer than what C can promise: that it is null or
//! points to what the header says.

use std::{
    ffi::{CStr, c_char, c_int},
    os::fd::BorrowedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use sheen_wire::{Errno, Result};

fn set_errno(e: Errno) {
    // SAFETY: the C library gives each thread an `errno` of its own, which lives as long as the
    // thread.
    unsafe { *libc::__errno_location() = e.0 }
}

fn guard<T>(failed: impl FnOnce(Errno) -> T, body: impl FnOnce() -> Result<T>) -> T {
    // A panic is a defect of ours; what it may have left half done is the layout in question alone.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO));
    result.unwrap_or_else(|e| {
        set_errno(e);
        failed(e)
    })
}

/// For functions that return -1 and set `errno`.
pub fn or_minus_one(body: impl FnOnce() -> Result<c_int>) -> c_int {
    guard(|_| -1, body)
}

/// For functions that return an errno negated; `errno` is set, too.
pub fn or_minus_errno(body: impl FnOnce() -> Result<c_int>) -> c_int {
    guard(|e| -e.0, body)
}

/// For functions that return a pointer, null where they fail.
pub fn or_null<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    guard(|_| ptr::null_mut(), body)
}

/// For functions that have an answer for everything.
pub fn or_else<T: Copy>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    guard(|_| otherwise, body)
}

/// What a pointer points to. EINVAL: null.
///
/// # Safety
/// It is null or points to a `T` that nobody changes during `'a`.
pub unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Errno::EINVAL)
}

/// What a pointer points to, to be changed. EINVAL: null.
///
/// # Safety
/// It is null or points to a `T` that nobody else uses during `'a`.
pub unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or(Errno::EINVAL)
}

/// Writes to where a pointer points, which needs not hold anything yet. EINVAL: null.
///
/// # Safety
/// It is null or points to room for a `T`.
pub unsafe fn put<T>(pointer: *mut T, value: T) -> Result<()> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise. A C program may pack what it likes, so nothing is said of
    // alignment.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// A string. EINVAL: null.
///
/// # Safety
/// It is null or points to bytes that end with a NUL and that nobody changes during `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// A string that may be absent: null or empty.
///
/// # Safety
/// As [`text`].
pub unsafe fn optional<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    unsafe { text(pointer) }.ok().filter(|text| !text.is_empty())
}

/// Writes a string and its NUL into `room` bytes. EINVAL: null. `too_small`: it does not fit;
/// nothing is written.
///
/// # Safety
/// `pointer` is null or points to room for that many bytes.
pub unsafe fn put_text(pointer: *mut c_char, room: usize, text: &[u8], too_small: Errno) -> Result<()> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    if text.len() >= room {
        return Err(too_small);
    }
    // SAFETY: the caller's promise, and `text` and the NUL are not more than `room`. They do not
    // overlap: `text` is ours.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), pointer.cast(), text.len());
        pointer.add(text.len()).write(0);
    }
    Ok(())
}

/// An open file. EBADF: it cannot be one.
///
/// # Safety
/// It stays open during `'a`. (If it does not, a system call says so; nothing else is done with
/// it.)
pub unsafe fn file<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the caller's promise, and it is not -1.
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
    fn failures_and_panics_become_return_values() {
        assert_eq!(or_minus_one(|| Ok(3)), 3);
        assert_eq!((or_minus_one(|| Err(Errno::ENOENT)), errno()), (-1, 2));
        assert_eq!((or_minus_errno(|| Err(Errno::ENOTTY)), errno()), (-25, 25));
        assert!(or_null::<u8>(|| Err(Errno::EINVAL)).is_null());
        assert_eq!((or_minus_one(|| panic!("said once")), errno()), (-1, 5));
    }

    #[test]
    fn text_is_written_whole_or_not_at_all() {
        let mut room = [7 as c_char; 4];
        let at = room.as_mut_ptr();
        // SAFETY: the room is as large as is said.
        unsafe {
            assert_eq!(put_text(at, 4, b"four", Errno::ENAMETOOLONG), Err(Errno::ENAMETOOLONG));
            assert_eq!(put_text(ptr::null_mut(), 4, b"", Errno::ENAMETOOLONG), Err(Errno::EINVAL));
            assert_eq!(put_text(at, 0, b"", Errno::ENAMETOOLONG), Err(Errno::ENAMETOOLONG));
            assert_eq!(put_text(at, 4, b"abc", Errno::ENAMETOOLONG), Ok(()));
            assert_eq!(text(at).map(CStr::to_bytes), Ok(&b"abc"[..]));
        }
    }
}
