//! Removal of files by FID, with all their names.
//!
//! The MDT returns the paths of the file, as for `lfs fid2path`: only the superuser may ask. Each
//! name is removed like by unlink(2), so the kernel and the MDT check permissions. A name that was
//! given to another file meanwhile is not removed, unless this happens just before the removal.
//!
//! Of a file with very many names, the MDT stores only some. If the file still has names after the
//! stored ones are removed, the removal fails.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sheen_wire::{Errno, Fid, Result, control};

use crate::file_system::FileSystem;

/// Directory of a mount that has every file by its FID. A mounted subdirectory has none.
pub const BY_FID: &str = ".lustre/fid";
/// Number of times that the names are looked up. A file gets new names while some are removed.
const ROUNDS_MAX: usize = 16;

/// Removes all names of a file, also those that it gets meanwhile. `mount`: the mount point.
///
/// # Errors
/// * ENOENT: there is no such file.
/// * EPERM: the caller is not the superuser.
/// * EISDIR: it is a directory.
/// * EBUSY: it had other names after each of 16 attempts.
/// * EMLINK: it has names that the MDT does not store.
/// * EOVERFLOW: the path of a name is too long.
/// * EXDEV: a path leads to another mount.
pub fn remove_fid(fs: &dyn FileSystem, mount: &Path, fid: Fid) -> Result<()> {
    let mut removed = false;
    for _ in 0..ROUNDS_MAX {
        let names = match names(fs, mount, fid) {
            Err(Errno::ENOENT) if removed => return Ok(()),
            names => names?,
        };
        if names.is_empty() {
            return match has_names(fs, mount, fid)? {
                true => Err(Errno::EMLINK),
                // A program has the file open, or other names are above the mounted directory.
                false if removed => Ok(()),
                false => Err(Errno::ENOENT),
            };
        }
        for name in &names {
            match fs.unlink_fid(mount, name, fid) {
                Ok(()) => removed = true,
                // The file no longer has this name.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ESTALE) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Err(Errno::EBUSY)
}

/// Returns whether a file has names. With a mounted subdirectory it is unknown: `false`.
fn has_names(fs: &dyn FileSystem, mount: &Path, fid: Fid) -> Result<bool> {
    match fs.nlink(&mount.join(BY_FID).join(fid.to_string())) {
        Err(Errno::ENOENT | Errno::ESTALE) => Ok(false),
        nlink => Ok(nlink? > 0),
    }
}

/// Returns the stored names of a file, as paths below the mount.
fn names(fs: &dyn FileSystem, mount: &Path, fid: Fid) -> Result<Vec<PathBuf>> {
    match paths(fs, mount, fid) {
        Err(e @ (Errno::EOVERFLOW | Errno::ERANGE | Errno::E2BIG)) => names_by_parent(fs, mount, fid, e),
        names => names,
    }
}

/// Returns the paths of a file that the MDT returns in one reply. EOVERFLOW: one is too long.
/// ERANGE, E2BIG: all together are.
fn paths(fs: &dyn FileSystem, mount: &Path, fid: Fid) -> Result<Vec<PathBuf>> {
    let value = match fs.get(mount, &format!("{}{fid}", control::PATHS_PREFIX)) {
        Err(Errno::ENODATA) => return Err(Errno::ENOENT),
        value => value?,
    };
    Ok(control::decode_paths(&value).into_iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
}

/// As [`names`], with one request for each directory. Leaves out names in directories whose paths
/// are too long. Returns `too_long` if no other name is stored.
fn names_by_parent(fs: &dyn FileSystem, mount: &Path, fid: Fid, too_long: Errno) -> Result<Vec<PathBuf>> {
    let by_fid = mount.join(BY_FID).join(fid.to_string());
    let value = fs.get(&by_fid, control::PARENTS).map_err(|_| too_long)?;
    let mut names = Vec::new();
    for entry in control::decode_paths(&value) {
        let (parent, name) = parent_and_name(entry).ok_or(Errno::EPROTO)?;
        match paths(fs, mount, parent) {
            Ok(dirs) => names.extend(dirs.first().map(|dir| dir.join(name))),
            Err(Errno::ENOENT | Errno::EOVERFLOW) => {}
            Err(e) => return Err(e),
        }
    }
    if names.is_empty() { Err(too_long) } else { Ok(names) }
}

/// Splits an entry of [`control::PARENTS`].
fn parent_and_name(entry: &[u8]) -> Option<(Fid, &OsStr)> {
    let slash = entry.iter().position(|byte| *byte == b'/')?;
    let parent = std::str::from_utf8(&entry[..slash]).ok()?.parse().ok()?;
    Some((parent, OsStr::from_bytes(&entry[slash + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_name_are_split_at_the_first_slash() {
        let parent = Fid { seq: 0x2_0000_0402, oid: 0x77, ver: 0 };
        let name = OsStr::from_bytes(b"a\xff/b");
        assert_eq!(parent_and_name(b"[0x200000402:0x77:0x0]/a\xff/b"), Some((parent, name)));
        assert_eq!(parent_and_name(b"[0x200000402:0x77:0x0]"), None);
        assert_eq!(parent_and_name(b"nothing/a"), None);
    }
}
