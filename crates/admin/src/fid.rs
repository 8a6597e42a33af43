//! FIDs of files on a Sheen mount.

use std::os::fd::AsFd;

use rustix::fs::fgetxattr;
use sheen_wire::{Errno, Fid, Result, control};

use crate::os_errno;

/// Bytes of a FID as text, with room to spare.
const TEXT_BYTES: usize = 64;

/// Returns the FID of an open file.
///
/// # Errors
/// ENOTTY: the file is not on a Sheen mount.
pub fn fid_of(file: impl AsFd) -> Result<Fid> {
    let mut text = [0; TEXT_BYTES];
    let len = fgetxattr(file, control::FID, &mut text[..]).map_err(|e| not_sheen(os_errno(e)))?;
    parse_fid(&text[..len])
}

/// Parses the value of [`control::FID`].
///
/// # Errors
/// ENOTTY: the value is not a FID.
pub fn parse_fid(value: &[u8]) -> Result<Fid> {
    std::str::from_utf8(value).ok().and_then(|text| text.trim_end().parse().ok()).ok_or(Errno::ENOTTY)
}

/// Maps the errors that other file systems return for an unknown attribute to ENOTTY.
pub fn not_sheen(e: Errno) -> Errno {
    match e {
        Errno::EOPNOTSUPP | Errno::ENODATA | Errno::EINVAL | Errno::ENOSYS => Errno::ENOTTY,
        e => e,
    }
}
