//! Opens files and gives new ones a layout, and reads the layout that a file has or would get.
//!
//! A file gets its layout between being made and being opened, so that nobody who finds it open
//! finds it with another. Where its layout is refused it stays behind empty and without one, as in
//! Lustre; it gets the directory's when it is first written.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{IntoRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use sheen_wire::{Errno, Result};

use crate::{
    layout::{Component, DEFAULT, Layout, OVERSTRIPING, WIDE},
    lum, mounts,
    sys::{self, At, LOV, errno},
};

/// Most links in a row, as the kernel's.
const LINKS_MAX: usize = 40;
/// What an owner needs to open a file that was just made.
const OWNER: u32 = 0o600;

/// Where a layout goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Onto {
    /// Onto a new file alone; one that is there is opened as it is.
    New,
    /// Also onto a file without one (EEXIST: it has one), or a directory, for what is made in it.
    Any,
}

/// Opens a file as open(2) does; a new one gets a layout, given as `lustre.lov` has it.
///
/// # Errors
/// ENOTTY: not on a mount. EINVAL: the layout. EOPNOTSUPP: a file without a name. EEXIST, and
/// whatever open(2) and mknod(2) say.
pub fn open(path: &CStr, flags: OFlags, mode: u32, layout: &[u8], onto: Onto) -> Result<OwnedFd> {
    if flags.contains(OFlags::TMPFILE) {
        return Err(Errno::EOPNOTSUPP);
    }
    let existing = flags - OFlags::CREATE - OFlags::EXCL;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        // Before anything is made, also where a link leads.
        match sys::fid(At::Path(&path)) {
            Err(Errno::ENOENT) => sys::fid(At::Path(&mounts::parent(&path)))?,
            there => there?,
        };
        if flags.contains(OFlags::CREATE) {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match rustix::fs::mknodat(CWD, path.as_c_str(), FileType::RegularFile, mode, 0) {
                Ok(()) => return open_made(&path, existing, layout),
                Err(rustix::io::Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                Err(e) => return Err(errno(e)),
            }
        }
        let opened = match onto {
            Onto::New => plain(&path, existing, mode),
            Onto::Any => lay_onto(&path, existing, layout),
        };
        if !matches!(opened, Err(Errno::ENOENT)) || !flags.contains(OFlags::CREATE) {
            return opened;
        }
        // A link may lead to where there is nothing yet.
        let Ok(target) = rustix::fs::readlink(path.as_c_str(), Vec::new()) else { return opened };
        path = beside(&path, &target)?;
    }
    Err(Errno::ELOOP)
}

/// open(2).
pub fn plain(path: &CStr, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    rustix::fs::open(path, flags, Mode::from_raw_mode(mode & 0o7777)).map_err(errno)
}

/// The number of an open file, which is the caller's to close.
pub fn give(file: OwnedFd) -> i32 {
    file.into_raw_fd()
}

/// Gives what was just made its layout and opens it, also with a mode that keeps its owner out: of
/// open(2), which makes a file, none is asked.
fn open_made(path: &CStr, flags: OFlags, layout: &[u8]) -> Result<OwnedFd> {
    let attempt = |new| sys::set(At::Path(path), LOV, layout, new).and_then(|()| plain(path, flags, 0));
    match attempt(true) {
        Err(Errno::EACCES) => {
            let mode = stat(path)?.st_mode & 0o7777;
            rustix::fs::chmod(path, Mode::from_raw_mode(mode | OWNER)).map_err(errno)?;
            // It may have its layout already; then this one counts for nothing.
            let opened = attempt(false);
            rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(errno)?;
            opened
        }
        opened => opened,
    }
}

fn stat(path: &CStr) -> Result<Stat> {
    rustix::fs::stat(path).map_err(errno)
}

fn lay_onto(path: &CStr, flags: OFlags, layout: &[u8]) -> Result<OwnedFd> {
    let flags = if FileType::from_raw_mode(stat(path)?.st_mode) == FileType::Directory {
        sys::set(At::Path(path), LOV, layout, false)?;
        // A directory opens for reading alone.
        (flags - OFlags::RWMODE - OFlags::TRUNC) | OFlags::DIRECTORY
    } else {
        sys::set(At::Path(path), LOV, layout, true)?;
        flags
    };
    plain(path, flags, 0)
}

/// Where a link leads.
fn beside(link: &CStr, target: &CStr) -> Result<CString> {
    let dir = mounts::parent(link);
    let path = Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(target.to_bytes()));
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// The layout of a file or a directory; with nothing in it where there is none. ENOTTY: not on a
/// mount. [`lum::decode`]'s.
pub fn layout_of(at: At<'_>) -> Result<Layout> {
    match sys::layout(at)? {
        Some(value) => lum::decode(&value, false),
        None => Ok(Layout::default()),
    }
}

/// The same with what is left open filled from the directory, the root and the file system: what a
/// file there gets. The path needs not lead to anything yet, but its directory must. ENOENT: it
/// does not.
pub fn expected_layout_of(path: &CStr) -> Result<Layout> {
    let (own, is_dir) = match sys::layout(At::Path(path)) {
        Err(Errno::ENOENT) => (None, false),
        own => (own?, FileType::from_raw_mode(stat(path)?.st_mode) == FileType::Directory),
    };
    let mount = mounts::info_of_place(path)?;
    let root = CString::new(mount.mountpoint.as_str()).map_err(|_| Errno::EINVAL)?;
    let dir = if is_dir { None } else { sys::layout(At::Path(&mounts::parent(path)))? };
    let levels = [own, dir, sys::layout(At::Path(&root))?];
    let mut said = levels.into_iter().flatten().map(|value| lum::decode(&value, false));
    let mut layout = said.next().unwrap_or_else(|| Ok(Layout::default()))?;
    for level in said {
        let level = level?;
        // What a composite default says is said of its components.
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

/// Size, number (with the right to several an OST) and pool come from the first that says
/// something.
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
    fn the_first_that_says_something_counts() {
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
    fn links_lead_beside_them_or_elsewhere() {
        assert_eq!(beside(c"d/link", c"../f").unwrap().as_c_str(), c"d/../f");
        assert_eq!(beside(c"link", c"f").unwrap().as_c_str(), c"./f");
        assert_eq!(beside(c"d/link", c"/f").unwrap().as_c_str(), c"/f");
    }

    #[test]
    fn other_file_systems_are_told_apart_before_anything_is_made() {
        let path = CString::new(format!("/tmp/llapi-test-{}", std::process::id())).unwrap();
        let opened = open(&path, OFlags::CREATE | OFlags::RDWR, 0o600, &[0; 32], Onto::New);
        assert_eq!(opened.err(), Some(Errno::ENOTTY));
        assert_eq!(stat(&path).err(), Some(Errno::ENOENT), "nothing is left");
        let nowhere = open(c"/no/such/directory/f", OFlags::CREATE | OFlags::RDWR, 0o600, &[0; 32], Onto::New);
        assert_eq!(nowhere.err(), Some(Errno::ENOENT));
        assert_eq!(layout_of(At::Path(c"/proc/self/exe")), Err(Errno::ENOTTY));
        assert_eq!(layout_of(At::Path(c"/no/such")), Err(Errno::ENOENT));
    }
}
