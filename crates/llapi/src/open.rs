//! Opens files, sets the layouts of new ones, and reads the layout that a file has or would get.
//!
//! A new file is created, then gets its layout, and is opened last. While it is open, it thus never
//! has another layout. If the layout is refused, the file remains, empty and without a layout, as
//! in Lustre. The first write then gives it the directory's default.

use std::{
    ffi::OsStr,
    os::{
        fd::{IntoRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use sheen_admin::{
    attributes::{self, At, LOV},
    os_errno,
    paths::parent_of,
};
use sheen_wire::{Errno, Result};

use crate::{
    layout::{Component, DEFAULT, Layout, OVERSTRIPING, WIDE},
    mounts, xattr,
};

/// Largest number of links that are followed in a row, as in the kernel.
const LINKS_MAX: usize = 40;
/// Mode bits that an owner needs to open a new file.
const OWNER: u32 = 0o600;

/// The files that get a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutTarget {
    /// Only a new file. An existing one is opened as it is.
    New,
    /// Also an existing file without a layout (EEXIST: it has one), or a directory, as the default
    /// of new files in it.
    Any,
}

/// Opens a file as open(2) does. A new file gets `layout`, in the format of `lustre.lov`.
///
/// # Errors
/// ENOTTY: not on a mount. EINVAL: an invalid layout. EOPNOTSUPP: a file without a name
/// (`O_TMPFILE`). EEXIST, and the errors of open(2) and mknod(2).
pub fn open(path: &Path, flags: OFlags, mode: u32, layout: &[u8], onto: LayoutTarget) -> Result<OwnedFd> {
    if flags.contains(OFlags::TMPFILE) {
        return Err(Errno::EOPNOTSUPP);
    }
    let existing = flags - OFlags::CREATE - OFlags::EXCL;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        // Check for a mount before anything is created, also where a link leads.
        match attributes::fid(At::Path(&path)) {
            Err(Errno::ENOENT) => attributes::fid(At::Path(parent_of(&path)))?,
            there => there?,
        };
        if flags.contains(OFlags::CREATE) {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match rustix::fs::mknodat(CWD, &path, FileType::RegularFile, mode, 0) {
                Ok(()) => return open_made(&path, existing, layout),
                Err(rustix::io::Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                Err(e) => return Err(os_errno(e)),
            }
        }
        let opened = match onto {
            LayoutTarget::New => plain(&path, existing, mode),
            LayoutTarget::Any => lay_onto(&path, existing, layout),
        };
        if !matches!(opened, Err(Errno::ENOENT)) || !flags.contains(OFlags::CREATE) {
            return opened;
        }
        // The link may lead to a path that does not exist yet.
        let Ok(target) = rustix::fs::readlink(&path, Vec::new()) else { return opened };
        path = beside(&path, OsStr::from_bytes(target.to_bytes()));
    }
    Err(Errno::ELOOP)
}

/// Calls open(2).
pub fn plain(path: &Path, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    rustix::fs::open(path, flags, Mode::from_raw_mode(mode & 0o7777)).map_err(os_errno)
}

/// Returns the number of an open file, which the caller must close.
pub fn give(file: OwnedFd) -> i32 {
    file.into_raw_fd()
}

/// Sets the layout of a new file and opens it, even if its mode denies access to its owner. As in
/// open(2), that mode does not restrict the call that creates the file.
fn open_made(path: &Path, flags: OFlags, layout: &[u8]) -> Result<OwnedFd> {
    let attempt = |new| attributes::set(At::Path(path), LOV, layout, new).and_then(|()| plain(path, flags, 0));
    match attempt(true) {
        Err(Errno::EACCES) => {
            let mode = stat(path)?.st_mode & 0o7777;
            rustix::fs::chmod(path, Mode::from_raw_mode(mode | OWNER)).map_err(os_errno)?;
            // The first attempt may have set the layout. Setting it again then has no effect.
            let opened = attempt(false);
            rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(os_errno)?;
            opened
        }
        opened => opened,
    }
}

fn stat(path: &Path) -> Result<Stat> {
    rustix::fs::stat(path).map_err(os_errno)
}

fn lay_onto(path: &Path, flags: OFlags, layout: &[u8]) -> Result<OwnedFd> {
    let flags = if FileType::from_raw_mode(stat(path)?.st_mode) == FileType::Directory {
        attributes::set(At::Path(path), LOV, layout, false)?;
        // A directory can only be opened for reading.
        (flags - OFlags::RWMODE - OFlags::TRUNC) | OFlags::DIRECTORY
    } else {
        attributes::set(At::Path(path), LOV, layout, true)?;
        flags
    };
    plain(path, flags, 0)
}

/// Returns the path to which a link leads.
fn beside(link: &Path, target: &OsStr) -> PathBuf {
    parent_of(link).join(target)
}

/// Returns the layout of a file or a directory, or a layout without settings if it has none.
/// ENOTTY: not on a mount. Other errors as [`xattr::decode`].
pub fn layout_of(at: At<'_>) -> Result<Layout> {
    match attributes::layout(at)? {
        Some(value) => xattr::decode(&value, false),
        None => Ok(Layout::default()),
    }
}

/// Returns the layout that a file at this path has or would get: values that are not set come from
/// the directory, the root and the file system. The path need not exist, but its directory must
/// (ENOENT).
pub fn expected_layout_of(path: &Path) -> Result<Layout> {
    let (own, is_dir) = match attributes::layout(At::Path(path)) {
        Err(Errno::ENOENT) => (None, false),
        own => (own?, FileType::from_raw_mode(stat(path)?.st_mode) == FileType::Directory),
    };
    let mount = mounts::info_of_path(path)?;
    let dir = if is_dir { None } else { attributes::layout(At::Path(parent_of(path)))? };
    let levels = [own, dir, attributes::layout(At::Path(Path::new(&mount.mountpoint)))?];
    let mut said = levels.into_iter().flatten().map(|value| xattr::decode(&value, false));
    let mut layout = said.next().unwrap_or_else(|| Ok(Layout::default()))?;
    for level in said {
        let level = level?;
        // A composite default describes only its own components.
        if !level.composite {
            layout.components_mut().iter_mut().for_each(|c| fill(c, level.current()));
        }
    }
    let count = match mount.default_stripe_count {
        ..0 => WIDE,
        count => u64::from(count.unsigned_abs()),
    };
    let last = Component {
        stripe_size: u64::from(mount.default_stripe_size),
        stripe_count: count,
        pattern: crate::layout::RAID0,
        ..Component::default()
    };
    layout.components_mut().iter_mut().for_each(|c| fill(c, &last));
    Ok(layout)
}

/// Fills the values that `c` does not set: size, count (with the permission for several stripes per
/// OST) and pool.
fn fill(c: &mut Component, from: &Component) {
    if c.stripe_size == DEFAULT {
        c.stripe_size = from.stripe_size;
    }
    if c.stripe_count == DEFAULT && c.pattern != crate::layout::MDT && !c.is_extension() {
        c.stripe_count = from.stripe_count;
        if from.pattern == OVERSTRIPING && !c.specific {
            c.pattern = OVERSTRIPING;
        }
    }
    if c.pattern == DEFAULT {
        c.pattern = from.pattern;
    }
    if c.pool.is_empty() {
        c.pool = from.pool.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::RAID0;

    #[test]
    fn first_level_that_sets_a_value_wins() {
        let mut c = Component { stripe_size: 1 << 20, ..Component::default() };
        let dir = Component { stripe_count: 8, pattern: OVERSTRIPING, pool: b"p".to_vec(), ..Component::default() };
        fill(&mut c, &dir);
        fill(&mut c, &Component { stripe_count: 1, stripe_size: 4 << 20, pattern: RAID0, ..Component::default() });
        assert_eq!(
            (c.stripe_size, c.stripe_count, c.pattern, c.pool.as_slice()),
            (1 << 20, 8, OVERSTRIPING, &b"p"[..])
        );
    }

    #[test]
    fn link_targets_resolve_from_the_directory_of_the_link() {
        let of = |link: &str, target: &str| beside(Path::new(link), OsStr::new(target)).into_os_string();
        assert_eq!(
            (of("d/link", "../f"), of("link", "f"), of("d/link", "/f")),
            ("d/../f".into(), "./f".into(), "/f".into())
        );
    }

    #[test]
    fn open_outside_a_mount_fails_and_creates_nothing() {
        let path = PathBuf::from(format!("/tmp/llapi-test-{}", std::process::id()));
        let opened = open(&path, OFlags::CREATE | OFlags::RDWR, 0o600, &[0; 32], LayoutTarget::New);
        assert_eq!(opened.err(), Some(Errno::ENOTTY));
        assert_eq!(stat(&path).err(), Some(Errno::ENOENT), "nothing is left");
        let nowhere =
            open(Path::new("/no/such/directory/f"), OFlags::CREATE | OFlags::RDWR, 0o600, &[0; 32], LayoutTarget::New);
        assert_eq!(nowhere.err(), Some(Errno::ENOENT));
        assert_eq!(layout_of(At::Path(Path::new("/proc/self/exe"))), Err(Errno::ENOTTY));
        assert_eq!(layout_of(At::Path(Path::new("/no/such"))), Err(Errno::ENOENT));
    }
}
