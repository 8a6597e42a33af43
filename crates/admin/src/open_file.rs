//! Group locks, mirrors and advice of an open file: one ioctl(2) each ([`sheen_wire::ioctl`]).

use std::os::fd::AsFd;

use rustix::ioctl::{Setter, Updater, ioctl};
use sheen_wire::{
    Result,
    ioctl::{self as number, Ladvise},
};

use crate::os_errno;

/// Takes a group lock on a file.
///
/// # Errors
/// As [`number::GROUP_LOCK`].
pub fn group_lock(file: impl AsFd, group: u64) -> Result<()> {
    // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that of a
    // `u64`.
    unsafe { ioctl(file, Setter::<{ number::GROUP_LOCK }, u64>::new(group)) }.map_err(os_errno)
}

/// Releases a group lock.
///
/// # Errors
/// As [`number::GROUP_UNLOCK`].
pub fn group_unlock(file: impl AsFd, group: u64) -> Result<()> {
    // SAFETY: as in `group_lock`.
    unsafe { ioctl(file, Setter::<{ number::GROUP_UNLOCK }, u64>::new(group)) }.map_err(os_errno)
}

/// Binds an open file to one of its mirrors, or (0) to the whole file again.
///
/// # Errors
/// As [`number::SET_MIRROR`].
pub fn use_mirror(file: impl AsFd, id: u16) -> Result<()> {
    // SAFETY: as in `group_lock`.
    unsafe { ioctl(file, Setter::<{ number::SET_MIRROR }, u64>::new(u64::from(id))) }.map_err(os_errno)
}

/// Gives advice on a file and returns it with the result filled in.
///
/// # Errors
/// As [`number::LADVISE`].
pub fn advise(file: impl AsFd, advice: &Ladvise) -> Result<Ladvise> {
    let mut advice = *advice;
    // SAFETY: the ioctl number encodes that the argument is read and written, and its size, which
    // is that of `Ladvise`. Another file system with this number expects Lustre's structure.
    unsafe { ioctl(file, Updater::<{ number::LADVISE }, Ladvise>::new(&mut advice)) }.map_err(os_errno)?;
    Ok(advice)
}
