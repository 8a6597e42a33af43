//! Projects of files, on a Sheen mount and on other file systems that have them.
//!
//! On a Sheen mount the project is an extended attribute of every file ([`sheen_wire::project`]).
//! Only the superuser may change it. Regular files and directories get it by ioctl(2), as on other
//! file systems.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{FileType, Mode, OFlags, XattrFlags},
    ioctl::{Setter, Updater, ioctl},
};
use sheen_wire::{
    Errno, Project, Result, control,
    project::{FsXattr, GET_FSXATTR, SET_FSXATTR, XATTR},
};

use crate::{attributes::not_sheen, os_errno};

/// Returns the project of a file. Does not follow a symbolic link.
///
/// # Errors
/// EOPNOTSUPP: a file of another file system that is neither a regular file nor a directory.
/// Otherwise the errno of lgetxattr(2), open(2) or ioctl(2).
pub fn get(path: &Path) -> Result<Project> {
    let mut value = [0u8; Project::BYTES];
    match rustix::fs::lgetxattr(path, &*control::open_name(XATTR), &mut value[..]).map_err(os_errno) {
        Ok(len) => Project::decode(value.get(..len).ok_or(Errno::EINVAL)?),
        Err(e) if not_sheen(e) == Errno::ENOTTY => {
            let file = open(path)?.ok_or(Errno::EOPNOTSUPP)?;
            fsxattr(&file).map(|attributes| attributes.project())
        }
        Err(e) => Err(e),
    }
}

/// Sets the project of a file. Does not follow a symbolic link. All other attributes stay.
///
/// # Errors
/// EPERM: the caller may not change the project. EOPNOTSUPP: the file system has no projects.
/// Otherwise the errno of lsetxattr(2), open(2) or ioctl(2).
pub fn set(path: &Path, project: Project) -> Result<()> {
    let Some(file) = open(path)? else {
        return rustix::fs::lsetxattr(path, XATTR, &project.encode(), XattrFlags::empty()).map_err(os_errno);
    };
    let attributes = fsxattr(&file)?.with_project(project);
    // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that of
    // `FsXattr`.
    unsafe { ioctl(&file, Setter::<{ SET_FSXATTR }, FsXattr>::new(attributes)) }.map_err(os_errno)
}

/// Opens a regular file or directory. `None`: it is another file, which might wait or have side
/// effects.
fn open(path: &Path) -> Result<Option<OwnedFd>> {
    let found = rustix::fs::lstat(path).map_err(os_errno)?;
    if !matches!(FileType::from_raw_mode(found.st_mode), FileType::RegularFile | FileType::Directory) {
        return Ok(None);
    }
    // Another file may have taken the name since.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(Some).map_err(os_errno)
}

fn fsxattr(file: &OwnedFd) -> Result<FsXattr> {
    let mut attributes = FsXattr::default();
    // SAFETY: the ioctl number encodes that the argument is written, and its size, which is that of
    // `FsXattr`. Any bytes are a value of it.
    unsafe { ioctl(file, Updater::<{ GET_FSXATTR }, FsXattr>::new(&mut attributes)) }.map_err(os_errno)?;
    Ok(attributes)
}
