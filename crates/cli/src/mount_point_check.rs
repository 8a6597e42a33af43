//! Valid mount points: neither above nor inside a directory in which servers store a file system.
//!
//! If the mount covers the directory of its server, the server sends requests for its own files to
//! itself. It waits for itself and cannot be killed. A backup of the directory would copy a mount
//! inside it, and `rm -r` would empty that mount.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    commands::umount::is_mounted,
    dir_kind::DirKind,
    error::{Failure, Result},
};

/// Number of names in a mount point that are checked at most.
const NAMES_MAX: usize = 1000;

/// Refuses a mount point at, above or below `dir`, the directory of a file system of `sheen up`.
///
/// # Errors
/// The mount point is `dir`, or lies above or below it.
pub fn check_beside(dir: &Path, mountpoint: &Path) -> Result {
    let (real_dir, at) = (real(dir), real_mountpoint(mountpoint));
    let how = if is_at_or_above(&at, &real_dir) {
        "would cover"
    } else if is_at_or_above(&real_dir, &at) {
        "is inside"
    } else {
        return Ok(());
    };
    let (mountpoint, dir) = (mountpoint.display(), dir.display());
    Err(Failure::new(format!("the mount point {mountpoint} {how} {dir}, where the file system is stored"))
        .advise("use --mount to specify a mount point that is neither above nor inside that directory"))
}

/// Refuses a mount point over, inside or directly above the directory of a server, as far as the
/// files there show. Servers further below, or in directories that this user cannot read, are not
/// detected.
///
/// # Errors
/// The mount point conflicts with such a directory.
pub fn check_no_server(mountpoint: &Path) -> Result {
    if is_mounted(mountpoint) {
        return Ok(()); // The caller refuses or removes the existing mount later.
    }
    let above = mountpoint.ancestors().map(Path::to_owned);
    match above.chain(names_in(mountpoint)).find_map(|dir| Some((DirKind::of(&dir)?, dir))) {
        None => Ok(()),
        Some((kind, dir)) => {
            let (mountpoint, dir) = (mountpoint.display(), dir.display());
            Err(Failure::new(format!("cannot mount at {mountpoint}: {dir} holds {kind}"))
                .advise("use a mount point that is neither above nor inside the directory of a server"))
        }
    }
}

/// Returns the subdirectories of a directory, of its first [`NAMES_MAX`] names.
fn names_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let found = entries.take(NAMES_MAX).flatten();
    found.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Resolves a path that may not exist yet: resolves the part that exists and appends the rest.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    found.unwrap_or_else(|| path.to_owned())
}

/// Resolves the parent of a mount point. The mount point itself is not accessed: its mount may not
/// respond.
fn real_mountpoint(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Returns whether `above` is `below` or a directory above it: by name or, for links and bind
/// mounts, by device and inode.
fn is_at_or_above(above: &Path, below: &Path) -> bool {
    if below.starts_with(above) {
        return true;
    }
    let Some(wanted) = identity(above) else { return false };
    below.ancestors().any(|dir| identity(dir) == Some(wanted))
}

/// Returns device and inode of a directory. `None` if there is none, or if Sheen is mounted there,
/// because that mount may not respond.
fn identity(path: &Path) -> Option<(u64, u64)> {
    if is_mounted(path) {
        return None;
    }
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn check_beside_refuses_mount_points_above_or_inside_the_directory() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let dir = base.join("fs");
        let is_allowed = |mountpoint: &Path| check_beside(&dir, mountpoint).is_ok();
        for made in [false, true] {
            if made {
                fs::create_dir(&dir).unwrap();
            } else {
                symlink(&base, base.join("link")).unwrap();
            }
            let linked = [base.join("link/fs"), base.join("link/fs/mnt")];
            let inside = [dir.clone(), dir.join("mnt"), dir.join("ost0/O")];
            for refused in inside.iter().chain(&linked).chain(&[base.clone(), "/".into()]) {
                assert!(!is_allowed(refused), "{}", refused.display());
            }
            for allowed in [base.join("mnt"), base.join("fs2"), base.join("f")] {
                assert!(is_allowed(&allowed), "{}", allowed.display());
            }
        }
        let seen = check_beside(&base.join("link/fs"), &dir).unwrap_err().to_string();
        assert!(seen.contains("would cover"), "the directory is named by a link: {seen}");
    }

    #[test]
    fn check_no_server_refuses_the_directories_of_servers() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let ost = base.join("srv/oss/0");
        fs::create_dir_all(&ost).unwrap();
        fs::write(ost.join("target"), "# A Sheen target; do not edit.\n").unwrap();
        for refused in ["srv", "srv/oss", "srv/oss/0", "srv/oss/0/new", "srv/oss/new"] {
            assert!(check_no_server(&base.join(refused)).is_err(), "{refused}");
        }
        for allowed in ["srv/mnt", "mnt"] {
            assert!(check_no_server(&base.join(allowed)).is_ok(), "{allowed}");
        }
    }
}
