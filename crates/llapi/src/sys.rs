//! The system calls: extended attributes of paths and open files, and the ioctls of a mount
//! ([`sheen_wire::ioctl`]).

use std::{ffi::CStr, os::fd::BorrowedFd};

use rustix::{
    fs::XattrFlags,
    ioctl::{Setter, Updater, ioctl},
};
use sheen_wire::{
    Errno, Fid, Result, control,
    ioctl::{self as number, DataVersion, FileId, Ladvise},
};

/// The layout of a file, or the default of a directory.
pub const LOV: &str = "lustre.lov";
/// Largest value of an extended attribute.
const VALUE_BYTES_MAX: usize = 65536;

/// The file of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// The file to which a path leads.
    Path(&'a CStr),
    /// The last name of a path, even if it is a symbolic link.
    Name(&'a CStr),
    /// An open file.
    File(BorrowedFd<'a>),
}

/// Converts an errno of the operating system.
pub fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

/// Returns an extended attribute. ENODATA: it does not exist.
pub fn get(at: At<'_>, name: &str) -> Result<Vec<u8>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let (name, room) = (&*control::open_name(name), &mut value[..]);
    let len = match at {
        At::Path(path) => rustix::fs::getxattr(path, name, room),
        At::Name(path) => rustix::fs::lgetxattr(path, name, room),
        At::File(file) => rustix::fs::fgetxattr(file, name, room),
    };
    value.truncate(len.map_err(errno)?);
    Ok(value)
}

/// Sets an extended attribute. `create`: EEXIST if it exists.
pub fn set(at: At<'_>, name: &str, value: &[u8], create: bool) -> Result<()> {
    let flags = if create { XattrFlags::CREATE } else { XattrFlags::empty() };
    match at {
        At::Path(path) => rustix::fs::setxattr(path, name, value, flags),
        At::Name(path) => rustix::fs::lsetxattr(path, name, value, flags),
        At::File(file) => rustix::fs::fsetxattr(file, name, value, flags),
    }
    .map_err(errno)
}

/// Replaces the layout that a file without a name (`O_TMPFILE`) got from its directory. EINVAL: no
/// file can have this layout.
pub fn replace_layout(file: BorrowedFd<'_>, layout: &[u8]) -> Result<()> {
    rustix::fs::fsetxattr(file, LOV, layout, XattrFlags::REPLACE).map_err(errno)
}

/// Returns an attribute that every file of a mount has. ENOTTY: not on a mount, as for Lustre's
/// ioctls.
pub fn ask(at: At<'_>, name: &str) -> Result<Vec<u8>> {
    get(at, name).map_err(|e| match e {
        Errno::EOPNOTSUPP | Errno::ENODATA | Errno::EINVAL | Errno::ENOSYS => Errno::ENOTTY,
        e => e,
    })
}

/// Returns the FID of a file. ENOTTY: not on a mount.
pub fn fid(at: At<'_>) -> Result<Fid> {
    let text = ask(at, control::FID)?;
    std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::ENOTTY)
}

/// Returns the index of the MDT that holds a file. ENOTTY: not on a mount.
pub fn mdt(at: At<'_>) -> Result<i32> {
    let text = ask(at, control::MDT)?;
    std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::ENOTTY)
}

/// Returns the layout as bytes; `None` if there is none. ENOTTY: not on a mount.
pub fn layout(at: At<'_>) -> Result<Option<Vec<u8>>> {
    match get(at, LOV) {
        Ok(value) => Ok(Some(value)),
        // These errors may come from another file system: check that the file is on a mount.
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => fid(at).map(|_| None),
        Err(e) => Err(e),
    }
}

/// Takes a group lock. Errors: [`number::GROUP_LOCK`].
pub fn group_lock(file: BorrowedFd<'_>, group: u64) -> Result<()> {
    // SAFETY: the number states that its argument is read, and has the size of a `u64`.
    unsafe { ioctl(file, Setter::<{ number::GROUP_LOCK }, u64>::new(group)) }.map_err(errno)
}

/// Releases a group lock. Errors: [`number::GROUP_UNLOCK`].
pub fn group_unlock(file: BorrowedFd<'_>, group: u64) -> Result<()> {
    // SAFETY: as for `group_lock`.
    unsafe { ioctl(file, Setter::<{ number::GROUP_UNLOCK }, u64>::new(group)) }.map_err(errno)
}

/// Makes an open file refer to one of its mirrors, or (0) to the whole file again. Errors:
/// [`number::SET_MIRROR`].
pub fn use_mirror(file: BorrowedFd<'_>, id: u16) -> Result<()> {
    // SAFETY: as for `group_lock`.
    unsafe { ioctl(file, Setter::<{ number::SET_MIRROR }, u64>::new(u64::from(id))) }.map_err(errno)
}

/// Swaps the layouts of two open files. EXDEV: they are on different mounts. ENOTTY: one is not on
/// a mount. Other errors: [`number::SWAP_LAYOUTS`].
pub fn swap_layouts(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<()> {
    fid(At::File(one))?;
    let second = FileId::from(fid(At::File(other))?);
    let device = |file| rustix::fs::fstat(file).map(|stat| stat.st_dev).map_err(errno);
    if device(one)? != device(other)? {
        return Err(Errno::EXDEV);
    }
    // SAFETY: the number states that its argument is read, and has the size of `FileId`.
    unsafe { ioctl(one, Setter::<{ number::SWAP_LAYOUTS }, FileId>::new(second)) }.map_err(errno)
}

/// Returns the data version of a file. Errors: [`number::DATA_VERSION`]; ENOTTY: not on a mount.
pub fn data_version(file: BorrowedFd<'_>, flush: u32) -> Result<u64> {
    fid(At::File(file))?;
    if flush != 0 {
        rustix::fs::fdatasync(file).map_err(errno)?;
    }
    let mut version = DataVersion { flags: flush, ..DataVersion::default() };
    // SAFETY: the number states that its argument is read and written, and has the size of
    // `DataVersion`.
    unsafe { ioctl(file, Updater::<{ number::DATA_VERSION }, DataVersion>::new(&mut version)) }.map_err(errno)?;
    Ok(version.version)
}

/// Gives one piece of advice and stores its result in it.
pub fn advise(file: BorrowedFd<'_>, advice: &mut Ladvise) -> Result<()> {
    // SAFETY: the number states that its argument is read and written, and has the size of
    // `Ladvise`.
    unsafe { ioctl(file, Updater::<{ number::LADVISE }, Ladvise>::new(advice)) }.map_err(errno)
}
