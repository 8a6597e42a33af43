//! The mounts of this host, and the information that a mount gives.

use std::{
    ffi::{CStr, CString, OsStr},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use sheen_wire::{
    Errno, Fid, Result,
    control::{self, MountInfo, TargetInfo},
    mgs::{Pool, TargetKind},
};

use crate::sys::{self, At};

/// Type of Sheen's mounts in the mount table.
pub const MOUNT_TYPE: &str = "fuse.sheen";

/// Returns information about the mount of a file. ENOTTY: not on a mount.
pub fn info(at: At<'_>) -> Result<MountInfo> {
    serde_json::from_slice(&sys::ask(at, control::MOUNT)?).map_err(|_| Errno::ENOTTY)
}

/// Returns the mount's targets of a kind, by index. ENOTTY: not on a mount.
pub fn targets(at: At<'_>, kind: TargetKind) -> Result<Vec<TargetInfo>> {
    let all: Vec<TargetInfo> = serde_json::from_slice(&sys::ask(at, control::DF)?).map_err(|_| Errno::ENOTTY)?;
    Ok(all.into_iter().filter(|target| target.kind == kind).collect())
}

/// Returns the pools of the file system, by name. ENOTTY: not on a mount. E2BIG: there are more
/// than the mount can return.
pub fn pools(at: At<'_>) -> Result<Vec<Pool>> {
    control::decode_pools(&sys::ask(at, control::POOLS)?).ok_or(Errno::ENOTTY)
}

/// Returns the indices of the OSTs of a pool. ENOENT: no such pool. Otherwise as [`pools`].
pub fn pool_of(at: At<'_>, name: &[u8]) -> Result<Vec<u32>> {
    let pool = pools(at)?.into_iter().find(|pool| pool.name.as_bytes() == name);
    pool.map(|pool| pool.osts).ok_or(Errno::ENOENT)
}

/// Returns information about the mount of a path, which need not exist yet. ENOTTY: not on a mount.
pub fn info_of_path(path: &CStr) -> Result<MountInfo> {
    match info(At::Path(path)) {
        Err(Errno::ENOENT) => info(At::Path(&parent(path))),
        found => found,
    }
}

/// Returns the directory of the last name of a path.
pub fn parent(path: &CStr) -> CString {
    let parent = Path::new(OsStr::from_bytes(path.to_bytes())).parent();
    let parent = parent.map(|p| p.as_os_str().as_bytes()).filter(|p| !p.is_empty());
    // A part of a string without NUL has no NUL.
    CString::new(parent.unwrap_or(b".")).unwrap_or_default()
}

/// An entry of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// Mount point.
    pub point: Vec<u8>,
    /// The file system's name.
    pub fsname: String,
    /// Device number that stat(2) returns for its files.
    pub device: u64,
}

/// Returns all mounts of this host without accessing them: a mount with a dead server would hang.
pub fn all() -> Vec<Mounted> {
    #[allow(clippy::disallowed_methods, reason = "the library is a part of other programs, which have no `Rt`")]
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|b| *b == b'\n').filter_map(mounted).collect()
}

/// Parses `36 35 0:45 / /mnt/c1 rw,nosuid shared:1 - fuse.sheen 10.0.2.15@tcp:/sheen rw`.
fn mounted(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|b| *b == b' ');
    let (device, point) = (fields.nth(2)?, fields.nth(1)?);
    let mut kind = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (kind.next()?, kind.next()?);
    let source = String::from_utf8(unescape(source)).ok().filter(|_| kind == MOUNT_TYPE.as_bytes())?;
    let (_, path) = source.split_once(":/")?;
    let fsname = path.split('/').next().unwrap_or(path).to_owned();
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Mounted { point: unescape(point), fsname, device })
}

/// Returns the mount that holds a path: the one whose mount point is the longest prefix of the
/// path.
pub fn holding<'a>(mounts: &'a [Mounted], path: &Path) -> Option<&'a Mounted> {
    let holds = |m: &&Mounted| path.starts_with(Path::new(OsStr::from_bytes(&m.point)));
    mounts.iter().filter(holds).max_by_key(|m| m.point.len())
}

/// Decodes the kernel's escapes, such as `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    loop {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                out.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            [first, after @ ..] => {
                out.push(*first);
                rest = after;
            }
            [] => return out,
        }
    }
}

/// Returns a path on the mount that an absolute path or a file system's name denotes. ENODEV: no
/// such mount.
pub fn root_of(device: &CStr) -> Result<CString> {
    let path = Path::new(OsStr::from_bytes(device.to_bytes()));
    if path.components().next() == Some(Component::RootDir) {
        return Ok(device.to_owned());
    }
    let mount = all().into_iter().find(|m| m.fsname.as_bytes() == device.to_bytes()).ok_or(Errno::ENODEV)?;
    CString::new(mount.point).map_err(|_| Errno::ENODEV)
}

/// Returns the path at which a mount shows a file by its FID. Only the superuser can use it.
pub fn by_fid(mount: &MountInfo, fid: Fid) -> Result<CString> {
    let root = mount.mountpoint.trim_end_matches('/');
    CString::new(format!("{root}/.lustre/fid/{fid}")).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_lines_are_parsed() {
        let line = b"36 35 0:45 / /mnt/a\\040b rw,nosuid shared:1 - fuse.sheen 10.0.2.15@tcp:10.0.2.16@tcp:/sheen rw";
        let found = mounted(line).unwrap();
        assert_eq!((found.point.as_slice(), found.fsname.as_str()), (&b"/mnt/a b"[..], "sheen"));
        assert_eq!(found.device, rustix::fs::makedev(0, 45));
        // Without an optional field, and with two.
        assert_eq!(mounted(b"1 2 0:3 / /m rw - fuse.sheen 0@lo:/one/sub rw").unwrap().fsname, "one");
        assert_eq!(mounted(b"1 2 0:3 / /m rw shared:1 master:2 - fuse.sheen 0@lo:/one rw").unwrap().fsname, "one");
        assert_eq!(mounted(b"23 1 0:21 / /tmp rw - tmpfs tmpfs rw"), None);
        assert_eq!(mounted(b"broken"), None);
    }

    #[test]
    fn innermost_mount_is_found_for_a_path() {
        let mount = |point: &str| Mounted { point: point.into(), fsname: point.into(), device: 0 };
        let mounts = [mount("/mnt"), mount("/mnt/inner"), mount("/mnt2")];
        let of = |path: &str| holding(&mounts, Path::new(path)).map(|m| m.fsname.as_str());
        assert_eq!(
            (of("/mnt/x"), of("/mnt/inner/x"), of("/mnt2"), of("/mn")),
            (Some("/mnt"), Some("/mnt/inner"), Some("/mnt2"), None)
        );
    }

    #[test]
    fn parents() {
        for (path, dir) in [(c"f", c"."), (c"d/f", c"d"), (c"/f", c"/"), (c"/", c".")] {
            assert_eq!(parent(path).as_c_str(), dir);
        }
    }
}
