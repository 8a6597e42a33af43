//! Leases for writing single mirrors: `llapi_lease_set`, `_check`, `_release`. They return an errno
//! negated.
//!
//! Lustre's lease also keeps all others from opening a file, which is not so here: it is lost when
//! somebody writes. Leases that are to do more than guard mirrors are refused.

use std::{
    ffi::{c_int, c_uint},
    os::fd::BorrowedFd,
    slice,
};

use sheen_wire::{Errno, Result};

use crate::{
    border::{file, or_minus_errno, shared},
    mirror,
};

/// `LL_LEASE_WRLCK`, `LL_LEASE_UNLCK`.
const WRITE: u32 = 2;
const UNLOCK: u32 = 4;
/// `LL_LEASE_RESYNC`, `LL_LEASE_RESYNC_DONE`.
const RESYNC: u32 = 1;
const RESYNC_DONE: u32 = 2;
/// Most ids in one call.
const IDS_MAX: u32 = 1 << 16;

/// `struct ll_ioc_lease` without the ids at its end.
#[derive(Debug)]
#[repr(C)]
pub struct LeaseRequest {
    mode: u32,
    flags: u32,
    count: u32,
    /// There are more of these.
    ids: [u32; 0],
}

/// `LL_LEASE_WRLCK` with `LL_LEASE_RESYNC`: takes a lease on the mirrors whose ids are given, or
/// with none on all stale ones; 0. `LL_LEASE_UNLCK`: gives it back, with `LL_LEASE_RESYNC_DONE`
/// after the components of these ids were copied, and returns `LL_LEASE_WRLCK`, or 0 if the lease
/// was lost: nothing is up to date then that was not.
///
/// -EALREADY: nothing is stale. -EBUSY: others change the file. -EUCLEAN: no other mirror is up to
/// date. -ENOLCK: there is no lease. -EOPNOTSUPP: any other lease. -EINVAL: no mirrored file, no
/// such mirrors. -EPERM, -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lease_set(fd: c_int, request: *const LeaseRequest) -> c_int {
    or_minus_errno(|| {
        let (file, asked) = unsafe { (file(fd)?, shared(request)?) };
        if asked.count > IDS_MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as many follow the struct, as C promises. The pointer is from the whole of it.
        let ids = unsafe { slice::from_raw_parts((&raw const (*request).ids).cast::<u32>(), asked.count as usize) };
        match (asked.mode, asked.flags) {
            (WRITE, RESYNC) => {
                let mirrors = ids.iter().map(|id| u16::try_from(*id).map_err(|_| Errno::EINVAL));
                mirror::begin(file, &mirrors.collect::<Result<Vec<_>>>()?).map(|()| 0)
            }
            (UNLOCK, RESYNC_DONE) => release(file, ids),
            (UNLOCK, 0) => release(file, &[]),
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}

fn release(file: BorrowedFd<'_>, components: &[u32]) -> Result<c_int> {
    Ok(if mirror::end(file, components)? { WRITE as c_int } else { 0 })
}

/// `LL_LEASE_WRLCK` while an open file has a lease that was not lost, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_check(fd: c_int) -> c_int {
    // SAFETY: the file is C's to keep open.
    or_minus_errno(|| Ok(if mirror::holds(unsafe { file(fd)? })? { WRITE as c_int } else { 0 }))
}

/// Gives a lease back: `LL_LEASE_WRLCK`, or 0 if it was lost. -ENOLCK: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_release(fd: c_int) -> c_int {
    // SAFETY: the file is C's to keep open.
    or_minus_errno(|| release(unsafe { file(fd)? }, &[]))
}

/// A lease on a whole file: -EOPNOTSUPP, there is none.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_acquire(fd: c_int, _mode: c_uint) -> c_int {
    // SAFETY: the file is C's to keep open.
    or_minus_errno(|| unsafe { file(fd) }.and(Err(Errno::EOPNOTSUPP)))
}
