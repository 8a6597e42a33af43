//! The information that a mount gives about itself, its targets and its pools.

use std::path::{Component, Path, PathBuf};

use sheen_admin::{
    attributes::{At, ask},
    mounts::mount_table,
    paths::parent_of,
};
use sheen_wire::{
    Errno, Fid, Result,
    control::{self, MountInfo, TargetInfo},
    mgs::{Pool, TargetKind},
};

/// Returns information about the mount of a file. ENOTTY: not on a mount.
pub fn info(at: At<'_>) -> Result<MountInfo> {
    serde_json::from_slice(&ask(at, control::MOUNT)?).map_err(|_| Errno::ENOTTY)
}

/// Returns the mount's targets of a kind, by index. ENOTTY: not on a mount.
pub fn targets(at: At<'_>, kind: TargetKind) -> Result<Vec<TargetInfo>> {
    let all: Vec<TargetInfo> = serde_json::from_slice(&ask(at, control::DF)?).map_err(|_| Errno::ENOTTY)?;
    Ok(all.into_iter().filter(|target| target.kind == kind).collect())
}

/// Returns the pools of the file system, by name. ENOTTY: not on a mount. E2BIG: there are more
/// than the mount can return.
pub fn pools(at: At<'_>) -> Result<Vec<Pool>> {
    control::decode_pools(&ask(at, control::POOLS)?).ok_or(Errno::ENOTTY)
}

/// Returns the indices of the OSTs of a pool. ENOENT: no such pool. Otherwise as [`pools`].
pub fn pool_of(at: At<'_>, name: &[u8]) -> Result<Vec<u32>> {
    let pool = pools(at)?.into_iter().find(|pool| pool.name.as_bytes() == name);
    pool.map(|pool| pool.osts).ok_or(Errno::ENOENT)
}

/// Returns information about the mount of a path, which need not exist yet. ENOTTY: not on a mount.
pub fn info_of_path(path: &Path) -> Result<MountInfo> {
    match info(At::Path(path)) {
        Err(Errno::ENOENT) => info(At::Path(parent_of(path))),
        found => found,
    }
}

/// Returns a path on the mount that an absolute path or a file system's name denotes. ENODEV: no
/// such mount.
pub fn root_of(device: &Path) -> Result<PathBuf> {
    if device.components().next() == Some(Component::RootDir) {
        return Ok(device.to_owned());
    }
    let mount = mount_table().into_iter().find(|m| *m.fsname == *device.as_os_str()).ok_or(Errno::ENODEV)?;
    Ok(mount.point)
}

/// Returns the path at which a mount shows a file by its FID. Only the superuser can use it.
pub fn by_fid(mount: &MountInfo, fid: Fid) -> PathBuf {
    let root = mount.mountpoint.trim_end_matches('/');
    format!("{root}/.lustre/fid/{fid}").into()
}
