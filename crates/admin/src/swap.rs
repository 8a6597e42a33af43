//! Exchange of the layouts, and so of the data, of two files.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, fstat, open},
    ioctl::{Setter, ioctl as call},
};
use sheen_wire::{
    Errno,
    ioctl::{self, FileId},
};

use crate::{Failure, Step, fid::fid_of};

/// Exchanges the layouts of two files through system calls on their mount.
///
/// # Errors
/// [`Step::OpenForSwap`]: the file of that path cannot be opened. [`Step::Swap`]: ENOTTY: a file is
/// not on a Sheen mount. EXDEV: the files are on different mounts. Otherwise the errno of the
/// failed system call.
pub fn swap_layouts(paths: [&Path; 2]) -> Result<(), Failure> {
    let ((one, first), (other, second)) = (opened(paths[0])?, opened(paths[1])?);
    let failed = |errno| Failure::new(Step::Swap, paths[0], errno);
    fid_of(&one).map_err(failed)?;
    let fid = fid_of(&other).map_err(failed)?;
    if first != second {
        return Err(failed(Errno::EXDEV));
    }
    // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that of
    // `FileId`.
    let swap = unsafe { Setter::<{ ioctl::SWAP_LAYOUTS }, FileId>::new(FileId::from(fid)) };
    // SAFETY: as above.
    unsafe { call(&one, swap) }.map_err(Failure::of(Step::Swap, paths[0]))
}

/// Opens a file for writing. Also returns its device.
fn opened(path: &Path) -> Result<(OwnedFd, u64), Failure> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let failed = Failure::of::<rustix::io::Errno>(Step::OpenForSwap, path);
    let file = open(path, flags, Mode::empty()).map_err(&failed)?;
    let device = fstat(&file).map_err(&failed)?.st_dev;
    Ok((file, device))
}
