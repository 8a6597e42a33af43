//! Pages of directories with the attributes of their entries ([`sheen_wire::entries`]).

use rustix::ioctl::{Updater, ioctl};
use sheen_wire::{
    Errno, Result,
    entries::{self, Ask, Page},
    ioctl::ENTRIES,
};

use super::work::Dir;
use crate::os_errno;

/// Buffer for a page.
pub type PageBuffer = Box<[u8; entries::PAGE_BYTES]>;

/// Returns an empty buffer.
pub fn buffer() -> PageBuffer {
    Box::new([0; entries::PAGE_BYTES])
}

/// Reads the page after a cookie. `flags`: the attributes that the entries must have.
///
/// # Errors
/// EPROTO: the directory's answer is not a page. Otherwise the errno of ioctl(2).
pub fn read<'a>(dir: &Dir, cookie: u64, flags: u32, buffer: &'a mut PageBuffer) -> Result<Page<'a>> {
    let ask = Ask { cookie, flags, spare: 0 };
    buffer[..size_of::<Ask>()].copy_from_slice(ask.encode());
    // SAFETY: the ioctl number encodes that the argument is read and written, and its size, which
    // is that of a page.
    let call = unsafe { Updater::<{ ENTRIES }, [u8; entries::PAGE_BYTES]>::new(buffer) };
    // SAFETY: as above.
    unsafe { ioctl(&dir.fd, call) }.map_err(os_errno)?;
    Page::decode(&buffer[..]).ok_or(Errno::EPROTO)
}
