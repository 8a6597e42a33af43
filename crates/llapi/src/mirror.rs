//! Single mirrors of an open file: reading and writing one, copying one to others, and the lease
//! under which that is done.
//!
//! A lease is the MDT's ticket (decision 017): the layout's generation, from which on the leased
//! mirrors are stale and every writer has to ask first. It is lost when anybody writes to the file,
//! and costs nobody a wait. It is kept here, by descriptor and FID: a descriptor that was closed
//! without giving it back, and is another file's now, has none.
//!
//! Invariant: a mirror is written only under a lease, while the layout is of its generation
//! ([`write_to`]): the mount itself refuses what comes later than the next change of the layout. So
//! what is declared fresh ([`end`]) was written by nobody else.

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

/// Bytes that are copied at a time: as many as travel in one request.
const CHUNK_BYTES: usize = 4 << 20;

/// Mirrors that this process alone writes, while nobody writes the file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lease {
    fid: Fid,
    generation: u32,
    mirrors: Vec<u16>,
}

/// By descriptor: at most as many as a process can have.
static LEASES: Mutex<BTreeMap<i32, Lease>> = Mutex::new(BTreeMap::new());

fn leases() -> MutexGuard<'static, BTreeMap<i32, Lease>> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// That of an open file. ENOLCK: it has none.
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

/// Takes a lease: the mirrors named, or with none all stale ones, are to be written.
///
/// EINVAL: the file has no mirrors, or not these. EALREADY: none is stale. EBUSY: somebody else
/// changed the layout at the same moment. EUCLEAN: no other mirror is up to date. EPERM: the file
/// is somebody else's.
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
    // What is written to a mirror by name may be longer than the file.
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

/// Whether an open file has a lease that nobody broke.
pub fn holds(file: BorrowedFd<'_>) -> Result<bool> {
    match lease(file) {
        Ok(lease) => Ok(layout(file)?.generation() == lease.generation),
        Err(Errno::ENOLCK) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives a lease back, and declares those mirrors up to date of which all components are listed.
/// Whether it was held until now: if not, none of them is. ENOLCK: there is none.
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
    // What was copied may not be durable yet, and must not be less so than its copies.
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

/// Does something while an open file is one of its mirrors; afterwards it is itself again. Errors:
/// [`sheen_wire::ioctl::SET_MIRROR`], and what is done.
pub fn as_mirror<T>(file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
    sys::use_mirror(file, id)?;
    let done = what();
    let cleared = sys::use_mirror(file, 0);
    done.and_then(|done| cleared.map(|()| done))
}

/// The same to change it. EBUSY: there is no lease on this mirror, or it was lost.
pub fn write_to<T>(file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
    let lease = lease(file).ok().filter(|lease| lease.mirrors.contains(&id)).ok_or(Errno::EBUSY)?;
    as_mirror(file, id, || {
        // From here on the mount sees to it.
        if layout(file)?.generation() != lease.generation {
            return Err(Errno::EBUSY);
        }
        what()
    })
}

/// Reads until the buffer is full or the file ends.
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

/// Writes all of it.
pub fn write(file: BorrowedFd<'_>, id: u16, bytes: &[u8], at: u64) -> Result<()> {
    write_to(file, id, || {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            done += rustix::io::pwrite(file, rest, at + done as u64).map_err(errno)?;
        }
        Ok(())
    })
}

/// Sets where it ends.
pub fn truncate(file: BorrowedFd<'_>, id: u16, size: u64) -> Result<()> {
    write_to(file, id, || rustix::fs::ftruncate(file, size).map_err(errno))
}

/// The first data from `at` on, and how long it is; where there is no more the end of the file, and
/// 0. (The file's offset is moved, as lseek(2) does.)
pub fn data(file: BorrowedFd<'_>, at: u64) -> Result<(u64, u64)> {
    let seek = |to| rustix::fs::seek(file, to);
    match seek(SeekFrom::Data(at)).and_then(|start| Ok((start, seek(SeekFrom::Hole(start))?))) {
        Ok((start, end)) => Ok((start, end.saturating_sub(start))),
        // Also where somebody cuts the file between the two.
        Err(rustix::io::Errno::NXIO) => Ok((size(file)?.max(at), 0)),
        Err(e) => Err(errno(e)),
    }
}

/// Makes mirrors hold what one does (`None`: one that is up to date), holes included. Those on
/// which it failed are taken out of `targets`; why is told if none is left.
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

/// Makes a range of a mirror hold what another one (0: the file) does: how many bytes, fewer than
/// asked for where the file ends, at which the copy ends then, too.
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
    fn data_is_found_between_holes() {
        let file = rustix::fs::memfd_create(c"holes", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &[1; 4096], 1 << 19), Ok(4096));
        let (start, len) = data(file.as_fd(), 0).unwrap();
        assert!(start <= 1 << 19 && start + len >= (1 << 19) + 4096);
        assert_eq!(data(file.as_fd(), start + len), Ok((1 << 20, 0)));
        assert_eq!(data(file.as_fd(), 1 << 21), Ok((1 << 21, 0)), "behind the end");
    }

    #[test]
    fn no_lease_is_held_of_what_is_on_no_mount() {
        let file = rustix::fs::open(c"/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!((holds(file.as_fd()), end(file.as_fd(), &[])), (Err(Errno::ENOTTY), Err(Errno::ENOTTY)));
        assert_eq!(write(file.as_fd(), 1, b"x", 0), Err(Errno::EBUSY));
    }
}
