//! Targets, their number, uuids and space: `llapi_get_obd_count`, `_lov_get_uuids`, `_obd_statfs`,
//! `_search_tgt` and similar functions. They return a negated errno if they fail.

use std::{
    ffi::{c_char, c_int},
    ptr,
};

use sheen_admin::{
    attributes::{self, At},
    os_errno,
};
use sheen_wire::{
    Errno, Result, StatFs,
    control::TargetInfo,
    mgs::{TargetKind, target_name},
};

use crate::{
    capi::LuFid,
    ffi::{file, optional, or_else, or_minus_errno, pathname, put, put_text, shared, text},
    mounts,
};

/// `struct obd_uuid`.
const UUID_BYTES: usize = 40;
/// `LL_STATFS_LMV`, `LL_STATFS_LOV`: of an MDT, of an OST. `LL_STATFS_NODELAY` has no effect.
const STATFS_MDT: u32 = 1;
const STATFS_OST: u32 = 2;
/// `os_type`: the magic of a file system, as in statfs(2).
const SUPER_MAGIC: u64 = 0x0BD0_0BD0;
/// Largest length of a file name, in bytes.
const NAME_MAX: u32 = 255;

/// `struct obd_statfs`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ObdStatFs {
    os_type: u64,
    os_blocks: u64,
    os_bfree: u64,
    os_bavail: u64,
    os_files: u64,
    os_ffree: u64,
    os_fsid: [u64; 5],
    os_bsize: u32,
    os_namelen: u32,
    os_maxbytes: u64,
    /// 1 if the target is degraded. No other bits are set.
    os_state: u32,
    os_fprecreated: u32,
    os_granted: u32,
    os_spare: [u32; 7],
}

const _: () = assert!(size_of::<ObdStatFs>() == 144);

impl From<StatFs> for ObdStatFs {
    fn from(s: StatFs) -> ObdStatFs {
        ObdStatFs {
            os_type: SUPER_MAGIC,
            os_blocks: s.blocks,
            os_bfree: s.bfree,
            os_bavail: s.bavail,
            os_files: s.files,
            os_ffree: s.ffree,
            os_bsize: s.bsize,
            os_namelen: NAME_MAX,
            os_maxbytes: i64::MAX as u64,
            os_state: s.state,
            ..ObdStatFs::default()
        }
    }
}

/// Stores the number of OSTs, or with `is_mdt` of MDTs, in the file system of a directory. -ENOENT,
/// -ENOTDIR, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_obd_count(dir: *const c_char, count: *mut c_int, is_mdt: c_int) -> c_int {
    or_minus_errno(|| {
        let dir = unsafe { pathname(dir)? };
        let stat = rustix::fs::stat(dir).map_err(os_errno)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let kind = if is_mdt == 0 { TargetKind::Ost } else { TargetKind::Mdt };
        unsafe { put(count, mounts::targets(At::Path(dir), kind)?.len() as c_int) }.map(|()| 0)
    })
}

/// Stores the uuids of the OSTs, by index, up to `*count` of them (none if `uuids` is null). Then
/// stores the number of OSTs in `*count`. -ENOTTY, -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lov_get_uuids(fd: c_int, uuids: *mut [u8; UUID_BYTES], count: *mut c_int) -> c_int {
    or_minus_errno(|| unsafe { put_uuids(fd, TargetKind::Ost, uuids, count) })
}

/// As [`llapi_lov_get_uuids`], for the MDTs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lmv_get_uuids(fd: c_int, uuids: *mut [u8; UUID_BYTES], count: *mut c_int) -> c_int {
    or_minus_errno(|| unsafe { put_uuids(fd, TargetKind::Mdt, uuids, count) })
}

/// # Safety
/// `uuids` is null, or points to room for `*count` of them.
unsafe fn put_uuids(fd: c_int, kind: TargetKind, uuids: *mut [u8; UUID_BYTES], count: *mut c_int) -> Result<c_int> {
    let targets = mounts::targets(At::File(unsafe { file(fd)? }), kind)?;
    if count.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and C has initialised it.
    let room = usize::try_from(unsafe { ptr::read_unaligned(count) }).unwrap_or(0);
    for (i, target) in targets.iter().take(if uuids.is_null() { 0 } else { room }).enumerate() {
        // SAFETY: within the room that C guarantees.
        unsafe { put_text(uuids.add(i).cast(), UUID_BYTES, target.uuid.as_bytes(), Errno::ENAMETOOLONG)? };
    }
    unsafe { put(count, targets.len() as c_int) }.map(|()| 0)
}

/// Stores the space and the uuid of the target with this index, on the mount of a path. `kind`:
/// `LL_STATFS_LMV` or `LL_STATFS_LOV`.
///
/// -ENODEV: no target has this or a larger index; -EAGAIN: none has this index. -ENODATA: the
/// target is inactive; its uuid is stored. Other errors are those of the target; its uuid is
/// stored. -ENOENT, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_obd_statfs(
    path: *const c_char,
    kind: u32,
    index: u32,
    space: *mut ObdStatFs,
    uuid: *mut [u8; UUID_BYTES],
) -> c_int {
    or_minus_errno(|| unsafe { statfs(At::Path(pathname(path)?), kind, index, space, uuid) })
}

/// As [`llapi_obd_statfs`], by an open file of the mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_obd_fstatfs(
    fd: c_int,
    kind: u32,
    index: u32,
    space: *mut ObdStatFs,
    uuid: *mut [u8; UUID_BYTES],
) -> c_int {
    or_minus_errno(|| unsafe { statfs(At::File(file(fd)?), kind, index, space, uuid) })
}

/// # Safety
/// Each pointer is null, or points to room for its value.
unsafe fn statfs(
    at: At<'_>,
    kind: u32,
    index: u32,
    space: *mut ObdStatFs,
    uuid: *mut [u8; UUID_BYTES],
) -> Result<c_int> {
    let kind = match kind & (STATFS_MDT | STATFS_OST) {
        STATFS_MDT => TargetKind::Mdt,
        STATFS_OST => TargetKind::Ost,
        _ => return Err(Errno::EINVAL),
    };
    if space.is_null() || uuid.is_null() {
        return Err(Errno::EINVAL);
    }
    let target = nth(mounts::targets(at, kind)?, index)?;
    unsafe { put_text(uuid.cast(), UUID_BYTES, target.uuid.as_bytes(), Errno::ENAMETOOLONG)? };
    if !target.active {
        return Err(Errno::ENODATA);
    }
    unsafe { put(space, target.statfs?.into()) }.map(|()| 0)
}

/// Returns the target with this index. EAGAIN: there is none, but some have a larger index. ENODEV:
/// the index is past the last target.
fn nth(targets: Vec<TargetInfo>, index: u32) -> Result<TargetInfo> {
    let e = if targets.iter().any(|target| target.index > index) { Errno::EAGAIN } else { Errno::ENODEV };
    targets.into_iter().find(|target| target.index == index).ok_or(e)
}

/// Stores the common name of the OSTs of a mount (`fsname-clilov-instance`, as in names of
/// parameters), by a path on it. -ENOENT, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_get_lov_uuid(path: *const c_char, uuid: *mut [u8; UUID_BYTES]) -> c_int {
    or_minus_errno(|| unsafe { put_group(At::Path(pathname(path)?), "clilov", uuid) })
}

/// As [`llapi_file_get_lov_uuid`], by an open file. -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_fget_lov_uuid(fd: c_int, uuid: *mut [u8; UUID_BYTES]) -> c_int {
    or_minus_errno(|| unsafe { put_group(At::File(file(fd)?), "clilov", uuid) })
}

/// Stores the common name of the MDTs of a mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_get_lmv_uuid(path: *const c_char, uuid: *mut [u8; UUID_BYTES]) -> c_int {
    or_minus_errno(|| unsafe { put_group(At::Path(pathname(path)?), "clilmv", uuid) })
}

/// As [`llapi_file_get_lmv_uuid`], by an open file of the mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_fget_lmv_uuid(fd: c_int, uuid: *mut [u8; UUID_BYTES]) -> c_int {
    or_minus_errno(|| unsafe { put_group(At::File(file(fd)?), "clilmv", uuid) })
}

/// # Safety
/// `uuid` is null, or points to room for one.
unsafe fn put_group(at: At<'_>, kind: &str, uuid: *mut [u8; UUID_BYTES]) -> Result<c_int> {
    let mount = mounts::info(at)?;
    let name = format!("{}-{kind}-{}", mount.fsname, mount.instance);
    unsafe { put_text(uuid.cast(), UUID_BYTES, name.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
}

/// Stores the index of the MDT that holds a file, by its FID and an open file of the mount.
/// -EINVAL: no file can have that FID. -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_mdt_index_by_fid(fd: c_int, fid: *const LuFid, index: *mut c_int) -> c_int {
    or_minus_errno(|| {
        let (file, fid) = unsafe { (file(fd)?, *shared(fid)?) };
        if fid.f_seq == 0 || fid.f_oid == 0 {
            return Err(Errno::EINVAL);
        }
        // As long as there is only one MDT, it holds all files.
        unsafe { put(index, attributes::mdt(At::File(file))?) }.map(|()| 0)
    })
}

/// Returns 1 if both are uuids of the same target, or one is empty (any target), else 0. Either may
/// lack `_UUID` at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_uuid_match(one: *const c_char, other: *const c_char) -> c_int {
    or_else(0, || Ok(c_int::from(unsafe { matches(text(one)?.to_bytes(), text(other)?.to_bytes()) })))
}

/// Returns 1 if a file system, or a pool of it, has a target, given by name or uuid; else 0.
/// Without a target: 1 if the pool has any. No MDT is in a pool.
///
/// -ENOENT: no such pool. -EINVAL: no file system, or neither a pool nor a target. -ENODEV as
/// `llapi_get_poollist`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_tgt(
    fsname: *const c_char,
    pool: *const c_char,
    target: *const c_char,
    is_mdt: bool,
) -> c_int {
    or_minus_errno(|| {
        let (root, pool, target) = unsafe { (mounts::root_of(pathname(fsname)?)?, optional(pool), optional(target)) };
        if pool.is_none() && target.is_none() {
            return Err(Errno::EINVAL);
        }
        let kind = if is_mdt { TargetKind::Mdt } else { TargetKind::Ost };
        let members = match pool {
            None => mounts::targets(At::Path(&root), kind)?.iter().map(|target| target.index).collect(),
            Some(_) if is_mdt => return Err(Errno::ENOENT),
            Some(pool) => mounts::pool_of(At::Path(&root), pool.to_bytes())?,
        };
        let fsname = mounts::info(At::Path(&root))?.fsname;
        let wanted = target.map(|name| plain_name(name.to_bytes()));
        let is_it = |index: &u32| wanted.is_none_or(|name| target_name(&fsname, kind, *index).as_bytes() == name);
        Ok(c_int::from(members.iter().any(is_it)))
    })
}

/// As [`llapi_search_tgt`], for an OST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_ost(fsname: *const c_char, pool: *const c_char, ost: *const c_char) -> c_int {
    unsafe { llapi_search_tgt(fsname, pool, ost, false) }
}

/// As [`llapi_search_tgt`], for an MDT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_mdt(fsname: *const c_char, pool: *const c_char, mdt: *const c_char) -> c_int {
    unsafe { llapi_search_tgt(fsname, pool, mdt, true) }
}

/// Returns a uuid without its common suffix.
fn plain_name(uuid: &[u8]) -> &[u8] {
    uuid.strip_suffix(b"_UUID").unwrap_or(uuid)
}

fn matches(one: &[u8], other: &[u8]) -> bool {
    one.is_empty() || other.is_empty() || plain_name(one) == plain_name(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_lookup_distinguishes_gaps_from_the_end() {
        let target = |index| TargetInfo {
            kind: TargetKind::Ost,
            index,
            uuid: String::new(),
            active: true,
            statfs: Err(Errno::EIO),
        };
        let all = || vec![target(0), target(2)];
        assert_eq!(nth(all(), 2).map(|found| found.index), Ok(2));
        assert_eq!(nth(all(), 1), Err(Errno::EAGAIN));
        assert_eq!((nth(all(), 3), nth(Vec::new(), 0)), (Err(Errno::ENODEV), Err(Errno::ENODEV)));
    }

    #[test]
    fn uuid_match_ignores_a_missing_suffix() {
        for (one, other, same) in [
            ("fs-OST0001_UUID", "fs-OST0001", true),
            ("fs-OST0001_UUID", "fs-OST0001_UUID", true),
            ("fs-OST0001_UUID", "fs-OST0002_UUID", false),
            ("fs-OST0001_UUID", "fs-OST000", false),
            ("", "fs-OST0001", true),
        ] {
            assert_eq!(matches(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
    }
}
