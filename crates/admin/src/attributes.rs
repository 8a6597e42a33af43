//! Extended attributes of files on a Sheen mount, by path or by descriptor.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    str::FromStr,
};

use rustix::fs::XattrFlags;
use sheen_wire::{Errno, Fid, Result, control};

use crate::os_errno;

/// The layout of a file, or the default of a directory.
pub const LOV: &str = "lustre.lov";
/// Largest value of an extended attribute in bytes, and so the largest answer of a mount.
const VALUE_BYTES_MAX: usize = 65536;

/// The file of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// The file to which a path leads.
    Path(&'a Path),
    /// The last name of a path, even if it is a symbolic link.
    Name(&'a Path),
    /// An open file.
    File(BorrowedFd<'a>),
}

/// Returns an extended attribute.
///
/// # Errors
/// ENODATA: it does not exist. Otherwise the errno of getxattr(2).
pub fn get(at: At<'_>, name: &str) -> Result<Vec<u8>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let (name, room) = (&*control::open_name(name), &mut value[..]);
    let len = match at {
        At::Path(path) => rustix::fs::getxattr(path, name, room),
        At::Name(path) => rustix::fs::lgetxattr(path, name, room),
        At::File(file) => rustix::fs::fgetxattr(file, name, room),
    };
    value.truncate(len.map_err(os_errno)?);
    Ok(value)
}

/// Sets an extended attribute. `create`: EEXIST if it exists.
///
/// # Errors
/// The errno of setxattr(2).
pub fn set(at: At<'_>, name: &str, value: &[u8], create: bool) -> Result<()> {
    let flags = if create { XattrFlags::CREATE } else { XattrFlags::empty() };
    match at {
        At::Path(path) => rustix::fs::setxattr(path, name, value, flags),
        At::Name(path) => rustix::fs::lsetxattr(path, name, value, flags),
        At::File(file) => rustix::fs::fsetxattr(file, name, value, flags),
    }
    .map_err(os_errno)
}

/// Replaces the layout that a volatile file (`O_TMPFILE`) got from its directory.
///
/// # Errors
/// EINVAL: no file can have this layout. Otherwise the errno of fsetxattr(2).
pub fn replace_layout(file: impl AsFd, layout: &[u8]) -> Result<()> {
    rustix::fs::fsetxattr(file, LOV, layout, XattrFlags::REPLACE).map_err(os_errno)
}

/// Returns an attribute that every file of a mount has.
///
/// # Errors
/// ENOTTY: the file is not on a Sheen mount, as for Lustre's ioctls. Otherwise as [`get`].
pub fn ask(at: At<'_>, name: &str) -> Result<Vec<u8>> {
    get(at, name).map_err(not_sheen)
}

/// Returns the FID of a file.
///
/// # Errors
/// As [`ask`].
pub fn fid(at: At<'_>) -> Result<Fid> {
    parse(&ask(at, control::FID)?)
}

/// Returns the FID of an open file.
///
/// # Errors
/// As [`ask`].
pub fn fid_of(file: impl AsFd) -> Result<Fid> {
    fid(At::File(file.as_fd()))
}

/// Returns the index of the MDT that holds a file.
///
/// # Errors
/// As [`ask`].
pub fn mdt(at: At<'_>) -> Result<i32> {
    parse(&ask(at, control::MDT)?)
}

/// Returns the layout of a file as bytes; `None` if it has none.
///
/// # Errors
/// As [`ask`].
pub fn layout(at: At<'_>) -> Result<Option<Vec<u8>>> {
    match get(at, LOV) {
        Ok(value) => Ok(Some(value)),
        // These errors may come from another file system: check that the file is on a mount.
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => fid(at).map(|_| None),
        Err(e) => Err(e),
    }
}

/// Parses the value of an attribute that is a FID or a number.
///
/// # Errors
/// ENOTTY: the value is something else, so the file is not on a Sheen mount.
pub fn parse<T: FromStr>(value: &[u8]) -> Result<T> {
    std::str::from_utf8(value).ok().and_then(|text| text.trim_end().parse().ok()).ok_or(Errno::ENOTTY)
}

/// Maps the errors that other file systems return for an unknown attribute to ENOTTY.
pub fn not_sheen(e: Errno) -> Errno {
    match e {
        Errno::EOPNOTSUPP | Errno::ENODATA | Errno::EINVAL | Errno::ENOSYS => Errno::ENOTTY,
        e => e,
    }
}
