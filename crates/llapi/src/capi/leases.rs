//! Leases to write single mirrors: `llapi_lease_set`, `_check`, `_release`. They return a negated
//! errno if they fail.
//!
//! Lustre's lease also prevents other processes from opening the file. This one does not: it ends
//! when another writer changes the file. Leases for purposes other than mirrors are refused.

use std::{
    ffi::{c_int, c_uint},
    os::fd::BorrowedFd,
    slice,
};

use sheen_wire::{Errno, Result};

use crate::{
    ffi::{file, or_minus_errno, shared},
    mirror,
};

/// `LL_LEASE_WRLCK`, `LL_LEASE_UNLCK`.
const WRITE: u32 = 2;
const UNLOCK: u32 = 4;
/// `LL_LEASE_RESYNC`, `LL_LEASE_RESYNC_DONE`.
const RESYNC: u32 = 1;
const RESYNC_DONE: u32 = 2;
/// Largest number of ids in one call.
const IDS_MAX: u32 = 1 << 16;

/// `struct ll_ioc_lease` without the ids at its end.
#[derive(Debug)]
#[repr(C)]
pub struct LeaseRequest {
    mode: u32,
    flags: u32,
    count: u32,
    /// The entries of the list follow the struct.
    ids: [u32; 0],
}

/// `LL_LEASE_WRLCK` with `LL_LEASE_RESYNC` takes a lease on the mirrors with these ids, or without
/// ids on all stale ones. Returns 0. `LL_LEASE_UNLCK` releases it; with `LL_LEASE_RESYNC_DONE` the
/// components with these ids have been copied. Returns `LL_LEASE_WRLCK`, or 0 if the lease had
/// ended: then no further mirror is up to date.
///
/// -EALREADY: nothing is stale. -EBUSY: other clients change the file. -EUCLEAN: no other mirror is
/// up to date. -ENOLCK: there is no lease. -EOPNOTSUPP: any other lease. -EINVAL: the file has no
/// mirrors, or not these. -EPERM, -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lease_set(fd: c_int, request: *const LeaseRequest) -> c_int {
    or_minus_errno(|| {
        let (file, asked) = unsafe { (file(fd)?, shared(request)?) };
        if asked.count > IDS_MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: C guarantees that as many follow the struct. The pointer covers all of it.
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

/// Returns `LL_LEASE_WRLCK` if an open file has a lease that is still valid, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_check(fd: c_int) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| Ok(if mirror::holds(unsafe { file(fd)? })? { WRITE as c_int } else { 0 }))
}

/// Releases a lease. Returns `LL_LEASE_WRLCK`, or 0 if the lease had ended. -ENOLCK: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_release(fd: c_int) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| release(unsafe { file(fd)? }, &[]))
}

/// An older form of [`llapi_lease_release`].
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_put(fd: c_int) -> c_int {
    llapi_lease_release(fd)
}

/// A lease on a whole file. It is not supported: -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_lease_acquire(fd: c_int, _mode: c_uint) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| unsafe { file(fd) }.and(Err(Errno::EOPNOTSUPP)))
}
