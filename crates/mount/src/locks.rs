//! File locks of programs, fcntl(2) and flock(2): conversion between the kernel's and the client's
//! forms.

use sheen_fuse::{Lock, LockRequest, abi::flags::lock_type};
use sheen_wire::{
    Errno, Result,
    ldlm::{Flock, FlockKind, Mode},
};

/// The kernel's offset for the end of all files.
const LAST_BYTE: u64 = i64::MAX as u64;

/// Converts a lock request of the kernel.
pub fn wanted(request: &LockRequest) -> Result<(Flock, Mode)> {
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
    Ok((Flock { start: lock.start, end, owner: request.owner, pid: lock.pid, kind }, mode))
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
        let (flock, mode) = wanted(&request).unwrap();
        assert_eq!((flock.start, flock.end, flock.owner, flock.pid, flock.kind), (5, u64::MAX, 9, 3, FlockKind::Posix));
        assert_eq!(mode, Mode::Pw);
        assert_eq!(found(&lock, Some((mode, flock))), lock);
        assert_eq!(found(&lock, None).kind, lock_type::UNLOCK);
        let kind = |kind| wanted(&LockRequest { lock: Lock { kind, ..lock }, flock: true, ..request });
        assert_eq!(kind(lock_type::READ).unwrap().1, Mode::Pr);
        assert_eq!(kind(lock_type::UNLOCK).unwrap().0.kind, FlockKind::Flock);
        assert_eq!(kind(9).err(), Some(Errno::EINVAL));
        let backwards = LockRequest { lock: Lock { start: 6, end: 5, ..lock }, ..request };
        assert_eq!(wanted(&backwards).err(), Some(Errno::EINVAL));
    }
}
