//! Single mirrors of an open file: reads and writes one, copies one to others, and manages the
//! lease that this needs.
//!
//! A lease is a generation of the layout, which the MDT assigned (decision 017). From this
//! generation on the leased mirrors are stale, and every writer must first ask the MDT. A write to
//! the file ends the lease; no writer waits for it. This module stores leases by descriptor and
//! FID. If a descriptor with a lease was closed and now belongs to another file, that file has no
//! lease.
//!
//! Invariant: a mirror is written only under a lease, while the layout has the lease's generation
//! ([`write_to`]). The mount refuses writes that come after the next change of the layout. Only
//! this process has therefore written a mirror that [`end`] declares up to date.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{SeekFrom, Stat};
use sheen_layout::{Composite, Layout};
use sheen_wire::{
    Errno, Fid, Result, Time,
    mirror::{Change, XATTR},
};

use crate::sys::{self, At, errno};

/// Bytes copied at a time: as many as one request carries.
const CHUNK_BYTES: usize = 4 << 20;

/// Mirrors that only this process writes, as long as no other write changes the file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lease {
    fid: Fid,
    generation: u32,
    mirrors: Vec<u16>,
}

/// By descriptor: at most as many as a process can open.
static LEASES: Mutex<BTreeMap<i32, Lease>> = Mutex::new(BTreeMap::new());

fn leases() -> MutexGuard<'static, BTreeMap<i32, Lease>> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the lease of an open file. ENOLCK: it has none.
fn lease(file: BorrowedFd<'_>) -> Result<Lease> {
    let fid = sys::fid(At::File(file))?;
    leases().get(&file.as_raw_fd()).filter(|lease| lease.fid == fid).cloned().ok_or(Errno::ENOLCK)
}

fn layout(file: BorrowedFd<'_>) -> Result<Layout> {
    let bytes = sys::layout(At::File(file))?.ok_or(Errno::ENODATA)?;
    Ok(Layout::decode(&bytes)?)
}

fn stat(file: BorrowedFd<'_>) -> Result<Stat> {
    rustix::fs::fstat(file).map_err(errno)
}

fn size(file: BorrowedFd<'_>) -> Result<u64> {
    Ok(u64::try_from(stat(file)?.st_size).unwrap_or(0))
}

/// Takes a lease to write the mirrors in `named`, or all stale ones if `named` is empty.
///
/// EINVAL: the file has no mirrors, or not these. EALREADY: none is stale. EBUSY: another client
/// changed the layout at the same moment. EUCLEAN: no other mirror is up to date. EPERM: the file
/// belongs to another user.
pub fn begin(file: BorrowedFd<'_>, named: &[u16]) -> Result<()> {
    let before = layout(file)?;
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
    let change = Change::Resync { mirrors: mirrors.clone(), end };
    sys::set(At::File(file), XATTR, &change.encode()?, false)?;
    let begun = layout(file)?;
    if !begun.follows(&before) || begun.mirror_state() != Composite::SYNC_PENDING {
        return Err(Errno::EBUSY);
    }
    let lease = Lease { fid: sys::fid(At::File(file))?, generation: begun.generation(), mirrors };
    leases().insert(file.as_raw_fd(), lease);
    Ok(())
}

/// Returns whether an open file has a lease that is still valid.
pub fn holds(file: BorrowedFd<'_>) -> Result<bool> {
    match lease(file) {
        Ok(lease) => Ok(layout(file)?.generation() == lease.generation),
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
    let now = layout(file)?;
    if now.generation() != lease.generation {
        return Ok(false);
    }
    let is_listed =
        |id: &u16| now.components().iter().filter(|c| c.mirror_id() == *id).all(|c| components.contains(&c.id));
    let mirrors: Vec<u16> = lease.mirrors.into_iter().filter(is_listed).collect();
    if mirrors.is_empty() {
        return Ok(true);
    }
    // The source of the copies may not be durable yet, and must not be less durable than the
    // copies.
    rustix::fs::fsync(file).map_err(errno)?;
    for id in &mirrors {
        as_mirror(file, *id, || rustix::fs::fsync(file).map_err(errno))?;
    }
    let stat = stat(file)?;
    let mtime = Time { sec: stat.st_mtime, nsec: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) };
    let change = Change::Resynced { generation: lease.generation, mirrors, mtime };
    match sys::set(At::File(file), XATTR, &change.encode()?, false) {
        Err(Errno::EBUSY) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Runs `what` while an open file refers to one of its mirrors. Afterwards it refers to the whole
/// file again. Errors: [`sheen_wire::ioctl::SET_MIRROR`], and those of `what`.
pub fn as_mirror<T>(file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
    sys::use_mirror(file, id)?;
    let done = what();
    let cleared = sys::use_mirror(file, 0);
    done.and_then(|done| cleared.map(|()| done))
}

/// As [`as_mirror`], to change the mirror. EBUSY: no lease covers this mirror, or it has ended.
pub fn write_to<T>(file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
    let lease = lease(file).ok().filter(|lease| lease.mirrors.contains(&id)).ok_or(Errno::EBUSY)?;
    as_mirror(file, id, || {
        // From here on the mount checks the generation.
        if layout(file)?.generation() != lease.generation {
            return Err(Errno::EBUSY);
        }
        what()
    })
}

/// Reads from a mirror until the buffer is full or the file ends.
pub fn read(file: BorrowedFd<'_>, id: u16, buffer: &mut [u8], at: u64) -> Result<usize> {
    as_mirror(file, id, || {
        let mut done = 0;
        while let Some(room) = buffer.get_mut(done..).filter(|room| !room.is_empty()) {
            match rustix::io::pread(file, room, at + done as u64).map_err(errno)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    })
}

/// Writes all bytes to a mirror.
pub fn write(file: BorrowedFd<'_>, id: u16, bytes: &[u8], at: u64) -> Result<()> {
    write_to(file, id, || {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            done += rustix::io::pwrite(file, rest, at + done as u64).map_err(errno)?;
        }
        Ok(())
    })
}

/// Sets the size of a mirror.
pub fn truncate(file: BorrowedFd<'_>, id: u16, size: u64) -> Result<()> {
    write_to(file, id, || rustix::fs::ftruncate(file, size).map_err(errno))
}

/// Returns start and length of the first data from `at` on; if there is none, the end of the file
/// and 0. Moves the offset of the file, as lseek(2) does.
pub fn data(file: BorrowedFd<'_>, at: u64) -> Result<(u64, u64)> {
    let seek = |to| rustix::fs::seek(file, to);
    match seek(SeekFrom::Data(at)).and_then(|start| Ok((start, seek(SeekFrom::Hole(start))?))) {
        Ok((start, end)) => Ok((start, end.saturating_sub(start))),
        // Also if the file is truncated between the two calls.
        Err(rustix::io::Errno::NXIO) => Ok((size(file)?.max(at), 0)),
        Err(e) => Err(errno(e)),
    }
}

/// Copies one mirror (`None`: one that is up to date) to others, including holes. Removes the
/// mirrors that failed from `targets`. Returns an error only if none is left.
pub fn copy(file: BorrowedFd<'_>, source: Option<u16>, targets: &mut Vec<u16>) -> Result<()> {
    let source = match source {
        Some(id) => id,
        None => layout(file)?.fresh_mirrors().first().map(|mirror| mirror.mirror_id()).ok_or(Errno::EUCLEAN)?,
    };
    let mut failed = Errno::EINVAL;
    let mut each = |targets: &mut Vec<u16>, what: &mut dyn FnMut(u16) -> Result<()>| {
        targets.retain(|id| what(*id).inspect_err(|e| failed = *e).is_ok());
        if targets.is_empty() { Err(failed) } else { Ok(()) }
    };
    let end = size(file)?;
    each(targets, &mut |id| truncate(file, id, 0))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < end {
        let (start, len) = as_mirror(file, source, || data(file, at))?;
        let stop = (start + len).min(end);
        at = start;
        while at < stop {
            let len = usize::try_from(stop - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let n = read(file, source, &mut buffer[..len], at)?;
            if n == 0 {
                break;
            }
            each(targets, &mut |id| write(file, id, &buffer[..n], at))?;
            at += n as u64;
        }
        if len == 0 || at < stop {
            break;
        }
    }
    each(targets, &mut |id| truncate(file, id, end))
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
    fn mirror_data_seek_finds_data_between_holes() {
        let file = rustix::fs::memfd_create(c"holes", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &[1; 4096], 1 << 19), Ok(4096));
        let (start, len) = data(file.as_fd(), 0).unwrap();
        assert!(start <= 1 << 19 && start + len >= (1 << 19) + 4096);
        assert_eq!(data(file.as_fd(), start + len), Ok((1 << 20, 0)));
        assert_eq!(data(file.as_fd(), 1 << 21), Ok((1 << 21, 0)), "behind the end");
    }

    #[test]
    fn lease_calls_fail_outside_a_mount() {
        let file = rustix::fs::open(c"/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!((holds(file.as_fd()), end(file.as_fd(), &[])), (Err(Errno::ENOTTY), Err(Errno::ENOTTY)));
        assert_eq!(write(file.as_fd(), 1, b"x", 0), Err(Errno::EBUSY));
    }
}
