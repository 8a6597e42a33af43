//! Writes to single mirrors of an open file, and copies between them, under a ticket.

use std::os::fd::BorrowedFd;

use sheen_wire::{Errno, Result};

use super::{
    single::{as_mirror, next_data, read},
    ticket::Ticket,
};
use crate::{
    copy::{Transfer, copy_data},
    os_errno,
};

/// Writes all bytes to a mirror.
///
/// # Errors
/// As [`Ticket::write_to`], and the errno of pwrite(2).
pub fn write(ticket: &Ticket, file: BorrowedFd<'_>, id: u16, bytes: &[u8], at: u64) -> Result<()> {
    ticket.write_to(file, id, || {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            done += rustix::io::pwrite(file, rest, at + done as u64).map_err(os_errno)?;
        }
        Ok(())
    })
}

/// Sets the size of a mirror.
///
/// # Errors
/// As [`Ticket::write_to`], and the errno of ftruncate(2).
pub fn truncate(ticket: &Ticket, file: BorrowedFd<'_>, id: u16, size: u64) -> Result<()> {
    ticket.write_to(file, id, || rustix::fs::ftruncate(file, size).map_err(os_errno))
}

/// Copies the first `size` bytes of a mirror to others, including holes. Removes the mirrors that
/// failed from `targets`.
///
/// # Errors
/// The error of the last target, if none is left; or that of the source.
pub fn copy_to(ticket: &Ticket, file: BorrowedFd<'_>, source: u16, targets: &mut Vec<u16>, size: u64) -> Result<()> {
    let mut copy = MirrorCopy { ticket, file, source, targets };
    copy.each(|id| truncate(ticket, file, id, 0))?;
    copy_data(&mut copy, size, None, &mut |_| {})?;
    copy.each(|id| truncate(ticket, file, id, size))
}

struct MirrorCopy<'a> {
    ticket: &'a Ticket,
    file: BorrowedFd<'a>,
    source: u16,
    targets: &'a mut Vec<u16>,
}

impl MirrorCopy<'_> {
    /// Calls `what` for each target, and goes on without those that fail.
    fn each(&mut self, what: impl Fn(u16) -> Result<()>) -> Result<()> {
        let mut failed = Errno::EINVAL;
        self.targets.retain(|id| what(*id).inspect_err(|e| failed = *e).is_ok());
        if self.targets.is_empty() { Err(failed) } else { Ok(()) }
    }
}

impl Transfer for MirrorCopy<'_> {
    type Error = Errno;

    fn data(&mut self, at: u64) -> Result<Option<(u64, u64)>> {
        as_mirror(self.file, self.source, || next_data(self.file, at))
    }

    fn read(&mut self, buffer: &mut [u8], at: u64) -> Result<usize> {
        read(self.file, self.source, buffer, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        let (ticket, file) = (self.ticket, self.file);
        self.each(|id| write(ticket, file, id, bytes, at))
    }
}
