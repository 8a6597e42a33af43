//! Removal of files by FID: `llapi_rmfid`, `_rmfid_at`. They return a negated errno if they fail.

use std::{
    ffi::{c_char, c_int},
    path::Path,
    slice,
};

use sheen_admin::{System, attributes::At, remove_fid};
use sheen_wire::{Errno, Result, control::MountInfo};

use crate::{
    capi::LuFid,
    ffi::{file, or_minus_errno, pathname, shared},
    mounts,
};

/// `OBD_MAX_FIDS_IN_ARRAY`.
const FIDS_MAX: u32 = 4096;

/// `struct fid_array` without the FIDs, which follow it.
#[derive(Debug)]
#[repr(C)]
pub struct FidArray {
    /// Number of FIDs.
    pub fa_nr: u32,
    /// Unused.
    pub fa_padding0: u32,
    /// Unused.
    pub fa_padding1: u64,
}

/// Removes files with all their names, for the superuser. `path`: any path on the mount, or the
/// file system's name. In the FID of a file that could not be removed, stores the negated errno as
/// the version. Stores 0 in the others.
///
/// -EPERM; -E2BIG: more than 4,096 FIDs; -ENOTTY, -ENODEV. No file is removed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_rmfid(path: *const c_char, fids: *mut FidArray) -> c_int {
    or_minus_errno(|| {
        let path = unsafe { pathname(path)? };
        let mount = match mounts::info(At::Path(path)) {
            Err(Errno::ENOENT) => mounts::info(At::Path(&mounts::root_of(path)?)),
            found => found,
        };
        unsafe { remove(&mount?, fids) }
    })
}

/// As [`llapi_rmfid`], by an open file of the mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_rmfid_at(fd: c_int, fids: *mut FidArray) -> c_int {
    or_minus_errno(|| unsafe { remove(&mounts::info(At::File(file(fd)?))?, fids) })
}

/// # Safety
/// `fids` is null, or the FIDs follow the struct.
unsafe fn remove(mount: &MountInfo, fids: *mut FidArray) -> Result<c_int> {
    let count = unsafe { shared(fids.cast_const())? }.fa_nr;
    if count > FIDS_MAX {
        return Err(Errno::E2BIG);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Errno::EPERM);
    }
    // SAFETY: guaranteed by the caller.
    let fids = unsafe { slice::from_raw_parts_mut(fids.add(1).cast::<LuFid>(), count as usize) };
    for fid in fids {
        let removed = remove_fid(&System, Path::new(&mount.mountpoint), (*fid).into());
        fid.f_ver = removed.err().map_or(0, |e| e.0.wrapping_neg() as u32);
    }
    Ok(0)
}
