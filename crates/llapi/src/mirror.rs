//! Leases to write single mirrors of an open file.
//!
//! A lease is a ticket of the MDT (decision 017, [`Ticket`]) that this module stores by descriptor
//! and FID, because C has only the descriptor. A write to the file ends the lease; no writer waits
//! for it. If a descriptor with a lease was closed and now belongs to another file, that file has
//! no lease.
//!
//! Invariant: a mirror is written only under a lease ([`Ticket::write_to`]). Only this process has
//! therefore written a mirror that [`end`] declares up to date.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sheen_admin::{
    attributes::fid_of,
    mirror::{self, MirroredFile, Ticket, as_mirror, next_data, read},
    os_errno,
};
use sheen_wire::{Errno, Fid, Result};

/// Bytes copied at a time: as many as one request carries.
const CHUNK_BYTES: usize = 4 << 20;

/// Mirrors that only this process writes, as long as no other write changes the file.
#[derive(Debug)]
struct Lease {
    fid: Fid,
    ticket: Ticket,
}

/// By descriptor: at most as many as a process can open.
static LEASES: Mutex<BTreeMap<i32, Arc<Lease>>> = Mutex::new(BTreeMap::new());

fn leases() -> MutexGuard<'static, BTreeMap<i32, Arc<Lease>>> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the lease of an open file. ENOLCK: it has none.
fn lease(file: BorrowedFd<'_>) -> Result<Arc<Lease>> {
    let fid = fid_of(file)?;
    leases().get(&file.as_raw_fd()).filter(|lease| lease.fid == fid).cloned().ok_or(Errno::ENOLCK)
}

/// Returns the lease of an open file, to write a mirror. EBUSY: it has none.
fn lease_to_write(file: BorrowedFd<'_>) -> Result<Arc<Lease>> {
    lease(file).map_err(|_| Errno::EBUSY)
}

fn size(file: BorrowedFd<'_>) -> Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(file).map_err(os_errno)?.st_size).unwrap_or(0))
}

/// Takes a lease to write the mirrors in `named`, or all stale ones if `named` is empty.
///
/// EINVAL: the file has no mirrors, or not these. EALREADY: none is stale. EBUSY: another client
/// changed the layout at the same moment. EUCLEAN: no other mirror is up to date. EPERM: the file
/// belongs to another user.
pub fn begin(file: BorrowedFd<'_>, named: &[u16]) -> Result<()> {
    let before = file.layout()?;
    let known = before.mirror_ids();
    if !before.is_mirrored() || !named.iter().all(|id| known.contains(id)) {
        return Err(Errno::EINVAL);
    }
    let mirrors = if named.is_empty() { before.stale_mirrors() } else { named.to_vec() };
    if mirrors.is_empty() {
        return Err(Errno::EALREADY);
    }
    // A mirror that is named may be written beyond the end of the file.
    let end = if named.is_empty() { size(file)? } else { u64::MAX };
    let ticket = Ticket::take(&file, before, &mirrors, end)?;
    let lease = Lease { fid: fid_of(file)?, ticket };
    leases().insert(file.as_raw_fd(), Arc::new(lease));
    Ok(())
}

/// Returns whether an open file has a lease that is still valid.
pub fn holds(file: BorrowedFd<'_>) -> Result<bool> {
    match lease(file) {
        Ok(lease) => Ok(lease.ticket.is_valid_for(&file.layout()?)),
        Err(Errno::ENOLCK) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Releases a lease, and declares those mirrors up to date of which all components are listed.
/// Returns whether the lease was valid until now. If not, no mirror is declared up to date. ENOLCK:
/// there is none.
pub fn end(file: BorrowedFd<'_>, components: &[u32]) -> Result<bool> {
    let lease = lease(file)?;
    leases().remove(&file.as_raw_fd());
    let now = file.layout()?;
    if !lease.ticket.is_valid_for(&now) {
        return Ok(false);
    }
    let is_listed =
        |id: &u16| now.components().iter().filter(|c| c.mirror_id() == *id).all(|c| components.contains(&c.id));
    let mirrors: Vec<u16> = lease.ticket.mirrors().iter().copied().filter(is_listed).collect();
    if mirrors.is_empty() {
        return Ok(true);
    }
    // The source of the copies may not be durable yet, and must not be less durable than the
    // copies.
    rustix::fs::fsync(file).map_err(os_errno)?;
    for id in &mirrors {
        as_mirror(file, *id, || rustix::fs::fsync(file).map_err(os_errno))?;
    }
    match lease.ticket.end(&file, &mirrors) {
        Err(Errno::EBUSY) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Runs `what` while an open file is bound to a mirror, to change the mirror. EBUSY: no lease
/// covers this mirror, or it has ended.
pub fn write_to<T>(file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
    lease_to_write(file)?.ticket.write_to(file, id, what)
}

/// Writes all bytes to a mirror.
pub fn write(file: BorrowedFd<'_>, id: u16, bytes: &[u8], at: u64) -> Result<()> {
    mirror::write(&lease_to_write(file)?.ticket, file, id, bytes, at)
}

/// Sets the size of a mirror.
pub fn truncate(file: BorrowedFd<'_>, id: u16, size: u64) -> Result<()> {
    mirror::truncate(&lease_to_write(file)?.ticket, file, id, size)
}

/// Returns start and length of the first data from `at` on; if there is none, the end of the file
/// and 0. Moves the offset of the file, as lseek(2) does.
pub fn data(file: BorrowedFd<'_>, at: u64) -> Result<(u64, u64)> {
    match next_data(file, at)? {
        Some((start, end)) => Ok((start, end.saturating_sub(start))),
        None => Ok((size(file)?.max(at), 0)),
    }
}

/// Copies one mirror (`None`: one that is up to date) to others, including holes. Removes the
/// mirrors that failed from `targets`. Returns an error only if none is left.
pub fn copy(file: BorrowedFd<'_>, source: Option<u16>, targets: &mut Vec<u16>) -> Result<()> {
    let source = match source {
        Some(id) => id,
        None => file.layout()?.fresh_mirrors().first().map(|mirror| mirror.mirror_id()).ok_or(Errno::EUCLEAN)?,
    };
    let end = size(file)?;
    mirror::copy_to(&lease_to_write(file)?.ticket, file, source, targets, end)
}

/// Copies a range of one mirror (0: the file) to another. Returns the number of bytes. If it is
/// less than `count`, the file ended, and the target is truncated there.
pub fn copy_range(file: BorrowedFd<'_>, source: u16, target: u16, at: u64, count: u64) -> Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut done = 0;
    while done < count {
        let len = usize::try_from(count - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let n = read(file, source, &mut buffer[..len], at + done)?;
        write(file, target, &buffer[..n], at + done)?;
        done += n as u64;
        if n < len {
            truncate(file, target, at + done)?;
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, Mode, OFlags};

    use super::*;

    #[test]
    fn data_seek_returns_the_end_of_the_file_behind_the_last_data() {
        let file = rustix::fs::memfd_create(c"holes", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &[1; 4096], 0), Ok(4096));
        let (start, len) = data(file.as_fd(), 0).unwrap();
        assert!(start == 0 && len >= 4096);
        assert_eq!(data(file.as_fd(), len), Ok((1 << 20, 0)));
        assert_eq!(data(file.as_fd(), 1 << 21), Ok((1 << 21, 0)), "behind the end");
    }

    #[test]
    fn lease_calls_fail_outside_a_mount() {
        let file = rustix::fs::open(c"/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!((holds(file.as_fd()), end(file.as_fd(), &[])), (Err(Errno::ENOTTY), Err(Errno::ENOTTY)));
        assert_eq!(write(file.as_fd(), 1, b"x", 0), Err(Errno::EBUSY));
        assert_eq!(copy(file.as_fd(), Some(1), &mut vec![2]), Err(Errno::EBUSY));
    }
}
