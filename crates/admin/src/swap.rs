//! Exchange of the layouts, and so of the data, of two files.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, fstat, open},
    ioctl::{Setter, ioctl as call},
};
use sheen_wire::{
    Errno, Result,
    ioctl::{self, FileId},
};

use crate::{Failure, Step, attributes::fid_of, os_errno};

/// Exchanges the layouts of two files through system calls on their mount.
///
/// # Errors
/// [`Step::OpenForSwap`]: the file of that path cannot be opened. [`Step::Swap`]: as
/// [`swap_layouts_of`].
pub fn swap_layouts(paths: [&Path; 2]) -> Result<(), Failure> {
    let (one, other) = (opened(paths[0])?, opened(paths[1])?);
    swap_layouts_of(&one, &other).map_err(|errno| Failure::new(Step::Swap, paths[0], errno))
}

/// Opens a file for writing.
fn opened(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(path, flags, Mode::empty()).map_err(Failure::of(Step::OpenForSwap, path))
}

/// Exchanges the layouts of two open files.
///
/// # Errors
/// ENOTTY: a file is not on a Sheen mount. EXDEV: the files are on different mounts. Otherwise as
/// [`ioctl::SWAP_LAYOUTS`].
pub fn swap_layouts_of(one: impl AsFd, other: impl AsFd) -> Result<()> {
    fid_of(&one)?;
    let second = FileId::from(fid_of(&other)?);
    if device(&one)? != device(&other)? {
        return Err(Errno::EXDEV);
    }
    // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that of
    // `FileId`.
    unsafe { call(&one, Setter::<{ ioctl::SWAP_LAYOUTS }, FileId>::new(second)) }.map_err(os_errno)
}

fn device(file: impl AsFd) -> Result<u64> {
    fstat(file).map(|stat| stat.st_dev).map_err(os_errno)
}
