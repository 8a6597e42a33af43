//! File locks of programs, fcntl(2) and flock(2): their owners, and conversion between the kernel's
//! and the client's forms.
//!
//! The kernel names an owner by its address in hashed form. The owner is an open file for flock(2)
//! and F_OFD_SETLK, and a process for F_SETLK. The kernel does not wait for RELEASE, so the next
//! open file may have the same address before RELEASE arrives. RELEASE would then unlock what the
//! next file has locked, or the locks of the next file would stay for ever. So the MDT knows owners
//! by numbers that are never used again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_fuse::{Lock, LockRequest, abi::flags::lock_type};
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Flock, FlockKind, Mode},
};

/// The kernel's offset for the end of all files.
const LAST_BYTE: u64 = i64::MAX as u64;

/// Numbers of the owners of locks. An open file has one from its open, for flock(2).
#[derive(Default)]
pub struct Owners {
    last: AtomicU64,
    /// Owners of fcntl locks, by locked file and the kernel's name. Bounded by what programs have
    /// open: an entry ends when its owner closes the file, or when all its open files end.
    fcntl: Mutex<FxHashMap<(Fid, u64), Owner>>,
}

struct Owner {
    number: u64,
    /// Numbers of the open files through which it has locked, each once.
    files: Vec<u64>,
    /// Requests for locks without a reply.
    requests: usize,
}

/// An owner that closes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closing {
    /// The number whose locks are to be released.
    pub number: u64,
    /// Whether the owner is forgotten. Otherwise it waits for a lock, which a later close releases.
    pub ended: bool,
}

/// A request of an owner for an fcntl lock. While it exists, a close does not end the owner.
pub struct Locking<'a> {
    owners: &'a Owners,
    key: (Fid, u64),
    /// The owner's number.
    pub number: u64,
}

impl Owners {
    /// Returns a new number. No owner has 0.
    pub fn next(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// Records that an owner is about to take an fcntl lock on `fid` through the open file with
    /// the number `file`.
    pub fn locks(&self, fid: Fid, owner: u64, file: u64) -> Locking<'_> {
        let key = (fid, owner);
        let mut owners = self.fcntl.lock();
        let owner = owners.entry(key).or_insert_with(|| Owner { number: self.next(), files: Vec::new(), requests: 0 });
        if !owner.files.contains(&file) {
            owner.files.push(file);
        }
        owner.requests += 1;
        Locking { owners: self, key, number: owner.number }
    }

    /// Returns the number of an owner of fcntl locks; `None` if it has none.
    pub fn get(&self, fid: Fid, owner: u64) -> Option<u64> {
        self.fcntl.lock().get(&(fid, owner)).map(|owner| owner.number)
    }

    /// An owner closes a file (FLUSH), which releases all its fcntl locks on it. `None`: it has
    /// none.
    pub fn closes(&self, fid: Fid, owner: u64) -> Option<Closing> {
        let mut owners = self.fcntl.lock();
        let known = owners.get(&(fid, owner))?;
        let closing = Closing { number: known.number, ended: known.requests == 0 };
        if closing.ended {
            owners.remove(&(fid, owner));
        }
        Some(closing)
    }

    /// An open file ends (RELEASE). Returns the number of `owner` if this was the last open file
    /// through which it locked: an owner that does not close is the open file itself.
    pub fn ends(&self, fid: Fid, owner: u64, file: u64) -> Option<u64> {
        let mut owners = self.fcntl.lock();
        let known = owners.get_mut(&(fid, owner))?;
        known.files.retain(|f| *f != file);
        if !known.files.is_empty() {
            return None;
        }
        owners.remove(&(fid, owner)).map(|owner| owner.number)
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        if let Some(owner) = self.owners.fcntl.lock().get_mut(&self.key).filter(|owner| owner.number == self.number) {
            owner.requests -= 1;
        }
    }
}

/// Converts a lock request of the kernel. `owner`: the number of its owner.
pub fn wanted(request: &LockRequest, owner: u64) -> Result<(Flock, Mode)> {
    let lock = &request.lock;
    let mode = match lock.kind {
        lock_type::READ => Mode::Pr,
        lock_type::WRITE => Mode::Pw,
        lock_type::UNLOCK => Mode::Nl,
        _ => return Err(Errno::EINVAL),
    };
    let end = if lock.end >= LAST_BYTE { u64::MAX } else { lock.end };
    if lock.start > end {
        return Err(Errno::EINVAL);
    }
    let kind = if request.flock { FlockKind::Flock } else { FlockKind::Posix };
    Ok((Flock { start: lock.start, end, owner, pid: lock.pid, kind }, mode))
}

/// Builds the reply to GETLK: the lock that conflicts with `asked`, if there is one.
pub fn found(asked: &Lock, by: Option<(Mode, Flock)>) -> Lock {
    match by {
        None => Lock { kind: lock_type::UNLOCK, ..*asked },
        Some((mode, flock)) => Lock {
            start: flock.start.min(LAST_BYTE),
            end: flock.end.min(LAST_BYTE),
            kind: if mode == Mode::Pr { lock_type::READ } else { lock_type::WRITE },
            pid: flock.pid,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_request_conversion_keeps_range_and_mode() {
        let lock = Lock { start: 5, end: LAST_BYTE, kind: lock_type::WRITE, pid: 3 };
        let request = LockRequest { fh: 1, owner: 9, lock, flock: false };
        let (flock, mode) = wanted(&request, 2).unwrap();
        assert_eq!((flock.start, flock.end, flock.owner, flock.pid, flock.kind), (5, u64::MAX, 2, 3, FlockKind::Posix));
        assert_eq!(mode, Mode::Pw);
        assert_eq!(found(&lock, Some((mode, flock))), lock);
        assert_eq!(found(&lock, None).kind, lock_type::UNLOCK);
        let kind = |kind| wanted(&LockRequest { lock: Lock { kind, ..lock }, flock: true, ..request }, 2);
        assert_eq!(kind(lock_type::READ).unwrap().1, Mode::Pr);
        assert_eq!(kind(lock_type::UNLOCK).unwrap().0.kind, FlockKind::Flock);
        assert_eq!(kind(9).err(), Some(Errno::EINVAL));
        let backwards = LockRequest { lock: Lock { start: 6, end: 5, ..lock }, ..request };
        assert_eq!(wanted(&backwards, 2).err(), Some(Errno::EINVAL));
    }
    const FILE: Fid = Fid::new(1, 1);
    /// The kernel's name of an owner.
    const NAME: u64 = 7;

    #[test]
    fn owner_of_fcntl_locks_has_one_number_until_it_closes_the_file() {
        let owners = Owners::default();
        let (a, b) = (owners.next(), owners.next());
        let first = owners.locks(FILE, NAME, a).number;
        assert_eq!(owners.locks(FILE, NAME, b).number, first, "through any open file");
        assert_ne!(owners.locks(Fid::new(1, 2), NAME, a).number, first);
        assert_eq!(owners.get(FILE, NAME), Some(first));
        assert_eq!(owners.closes(FILE, NAME), Some(Closing { number: first, ended: true }));
        assert_eq!((owners.get(FILE, NAME), owners.closes(FILE, NAME), owners.ends(FILE, NAME, b)), (None, None, None));
        assert_ne!(owners.locks(FILE, NAME, a).number, first);
    }

    #[test]
    fn owner_with_a_request_remains_until_a_later_close() {
        let owners = Owners::default();
        let waits = owners.locks(FILE, NAME, 1);
        let number = waits.number;
        assert_eq!(owners.closes(FILE, NAME), Some(Closing { number, ended: false }));
        drop(waits);
        assert_eq!(owners.closes(FILE, NAME), Some(Closing { number, ended: true }));
        assert_eq!(owners.get(FILE, NAME), None);
    }

    /// An open file is the owner, and the next one has its address before it is released.
    #[test]
    fn late_release_of_an_open_file_keeps_the_locks_of_the_next_one() {
        let owners = Owners::default();
        let (old, new) = (owners.next(), owners.next());
        drop(owners.locks(FILE, NAME, old));
        let number = owners.locks(FILE, NAME, new).number;
        assert_eq!(owners.ends(FILE, NAME, old), None);
        assert_eq!(owners.ends(FILE, NAME, new), Some(number));
        let late = owners.locks(FILE, NAME, new);
        assert_ne!(late.number, number);
        assert_eq!(owners.ends(FILE, NAME, new), Some(late.number), "the kernel ended it before the reply");
        let next = owners.locks(FILE, NAME, new).number;
        drop(late);
        assert_eq!(owners.closes(FILE, NAME), Some(Closing { number: next, ended: true }));
    }
}
