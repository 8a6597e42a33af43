//! Group locks and advice: `llapi_group_lock`, `_unlock`, `llapi_ladvise`.

use std::{
    ffi::{c_int, c_ulonglong},
    slice,
};

use sheen_wire::{
    Errno, Result,
    ioctl::{self, Ladvise},
};

use crate::{
    border::{file, or_minus_errno, or_minus_one},
    capi::messages,
    sys,
};

/// `LAH_COUNT_MAX`: most pieces of advice in one call.
const ADVICES_MAX: usize = 1024;
/// `LF_ASYNC`, and `LF_UNSET`, which undoes what is not supported.
const ASYNC: u32 = 1;
const UNSET: u32 = 2;
/// Ranges that end at a multiple of this are taken to name the byte after the last.
const PAGE: u64 = 4096;

/// Takes a group lock on an open file for a group, whose number is not 0; waits until those of
/// others are given back, unless it was opened with `O_NONBLOCK`. It ends with the open file. 0, or
/// an errno negated.
///
/// -EBADF, -ENOTTY; -EINVAL: in a group already, group 0, or no objects yet; -EAGAIN: others are in
/// the way; -EINTR.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_lock(fd: c_int, group: c_int) -> c_int {
    llapi_group_lock64(fd, i64::from(group) as u64)
}

/// The same for a group of a larger number.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_lock64(fd: c_int, group: u64) -> c_int {
    or_minus_errno(|| {
        // SAFETY: the file is C's to keep open.
        let done = sys::group_lock(unsafe { file(fd)? }, group);
        done.inspect_err(|e| messages::say(messages::ERROR, Some(*e), "cannot get group lock")).map(|()| 0)
    })
}

/// Gives it back. -EINVAL: it has none, or that of another group.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_unlock(fd: c_int, group: c_int) -> c_int {
    llapi_group_unlock64(fd, i64::from(group) as u64)
}

/// The same for a group of a larger number.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_group_unlock64(fd: c_int, group: u64) -> c_int {
    or_minus_errno(|| {
        // SAFETY: the file is C's to keep open.
        let done = sys::group_unlock(unsafe { file(fd)? }, group);
        done.inspect_err(|e| messages::say(messages::ERROR, Some(*e), "cannot put group lock")).map(|()| 0)
    })
}

/// Gives advice on an open file; the results of locks ahead are stored in it. 0, or -1 with
/// `errno`.
///
/// `lla_end`: the byte after the last, as the manual page of Lustre has it, or the last, as its
/// header and MPI libraries do: a multiple of 4 KiB is the former. EINVAL: an empty range, unknown
/// flags, none or more than 1,024. EBADF, ENOTTY, EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_ladvise(fd: c_int, flags: c_ulonglong, count: c_int, advices: *mut Ladvise) -> c_int {
    or_minus_one(|| {
        let count = usize::try_from(count).ok().filter(|n| (1..=ADVICES_MAX).contains(n)).ok_or(Errno::EINVAL)?;
        let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
        if advices.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and of that many, as C promises.
        let advices = unsafe { slice::from_raw_parts_mut(advices, count) };
        let file = unsafe { file(fd)? };
        for advice in advices {
            let mut asked = ask(advice, flags)?;
            sys::advise(file, &mut asked)?;
            advice.result = asked.result;
        }
        Ok(0)
    })
}

/// As the mount takes it.
fn ask(advice: &Ladvise, flags: u32) -> Result<Ladvise> {
    let flags = flags | advice.flags;
    let last = match advice.last {
        u64::MAX => u64::MAX,
        end if end.is_multiple_of(PAGE) => end.checked_sub(1).ok_or(Errno::EINVAL)?,
        last => last,
    };
    if flags & !(ASYNC | UNSET) != 0 || last < advice.start {
        return Err(Errno::EINVAL);
    }
    if flags & UNSET != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let flags = if flags & ASYNC != 0 { ioctl::ASYNC } else { 0 };
    Ok(Ladvise { flags, last, ..*advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_the_last_byte_or_the_one_after() {
        let last = |start, last| ask(&Ladvise { start, last, ..Ladvise::default() }, 0).map(|a| a.last);
        assert_eq!(last(0, 1 << 20), Ok((1 << 20) - 1));
        assert_eq!(last(0, (1 << 20) - 1), Ok((1 << 20) - 1));
        assert_eq!(last(0, u64::MAX), Ok(u64::MAX));
        assert_eq!(last(4096, 4096), Err(Errno::EINVAL));
        assert_eq!(last(0, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn flags_are_those_that_there_are() {
        let flags = |one, all| ask(&Ladvise { flags: one, last: 10, ..Ladvise::default() }, all).map(|a| a.flags);
        assert_eq!((flags(0, 0), flags(ASYNC, 0), flags(0, ASYNC)), (Ok(0), Ok(ioctl::ASYNC), Ok(ioctl::ASYNC)));
        assert_eq!((flags(4, 0), flags(0, UNSET)), (Err(Errno::EINVAL), Err(Errno::EOPNOTSUPP)));
    }
}
