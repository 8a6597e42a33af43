//! Group locks and advice: `llapi_group_lock`, `_unlock`, `llapi_ladvise`.

use std::{
    ffi::{c_int, c_ulonglong},
    slice,
};

use sheen_admin::open_file;
use sheen_wire::{
    Errno,
    ioctl::{LADVISE_MAX, Ladvise},
};

use crate::{
    capi::messages,
    ffi::{file, or_minus_errno, or_minus_one},
};

/// Takes a group lock on an open file. The group's number must not be 0. Waits until conflicting
/// locks are cancelled, unless the file was opened with `O_NONBLOCK`. The lock ends when the file
/// is closed. Returns 0, or a negated errno.
///
/// -EBADF, -ENOTTY; -EINVAL: the file has a group lock already, group 0, or no objects yet;
/// -EAGAIN: a lock conflicts; -EINTR.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_lock(fd: c_int, group: c_int) -> c_int {
    llapi_group_lock64(fd, i64::from(group) as u64)
}

/// As [`llapi_group_lock`], with a group number of 64 bits.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_lock64(fd: c_int, group: u64) -> c_int {
    or_minus_errno(|| {
        // SAFETY: C keeps the file open.
        let done = open_file::group_lock(unsafe { file(fd)? }, group);
        done.inspect_err(|e| messages::say(messages::ERROR, Some(*e), "cannot get group lock")).map(|()| 0)
    })
}

/// Releases a group lock. -EINVAL: the file has none, or that of another group.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_unlock(fd: c_int, group: c_int) -> c_int {
    llapi_group_unlock64(fd, i64::from(group) as u64)
}

/// As [`llapi_group_unlock`], with a group number of 64 bits.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_unlock64(fd: c_int, group: u64) -> c_int {
    or_minus_errno(|| {
        // SAFETY: C keeps the file open.
        let done = open_file::group_unlock(unsafe { file(fd)? }, group);
        done.inspect_err(|e| messages::say(messages::ERROR, Some(*e), "cannot put group lock")).map(|()| 0)
    })
}

/// Gives advice on an open file. Stores the results of lockahead requests in the advice. Returns 0,
/// or -1 with `errno`.
///
/// `lla_end` is the byte after the last, as in Lustre's manual page, or the last byte, as in its
/// header and in MPI libraries. A multiple of 4 KiB counts as the byte after the last. EINVAL: an
/// empty range, unknown flags, no advice or more than 1,024 pieces. EBADF, ENOTTY, EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_ladvise(fd: c_int, flags: c_ulonglong, count: c_int, advices: *mut Ladvise) -> c_int {
    or_minus_one(|| {
        let count = u32::try_from(count).ok().filter(|n| (1..=LADVISE_MAX).contains(n)).ok_or(Errno::EINVAL)?;
        let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
        if advices.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and C guarantees that many elements.
        let advices = unsafe { slice::from_raw_parts_mut(advices, count as usize) };
        let file = unsafe { file(fd)? };
        for advice in advices {
            advice.result = open_file::advise(file, &advice.asked(flags)?)?.result;
        }
        Ok(0)
    })
}
