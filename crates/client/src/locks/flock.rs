//! Client-side state of programs' file locks: the waiting requests, and the locks held.
//!
//! The locks held are needed to take them again at a restarted MDT, before it grants others.
//!
//! Invariants:
//! * A lock is recorded before its program continues, and removed before the MDT is asked to
//!   release it. So each recorded lock is one that its program may rely on.
//! * A grant of an earlier life of the MDT is not recorded once that life is over
//!   ([`Flocks::locked`]): the program asks again, which is harmless if it has the lock.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_wire::{
    Fid,
    ldlm::{Cookie, Enqueue, Flags, Flock, FlockKind, Mode, Policy, Resource},
};
use tokio::sync::oneshot;

/// Marks the handles of this module. They differ from the engine's and from those of
/// `intent_locks`.
const FLOCK: u64 = 1 << 61;
/// Maximum number of remembered abandoned requests. A grant that crossed the cancellation arrives
/// within a round trip.
const ABANDONED_MAX: usize = 256;

/// The programs that wait for file locks, and the locks that programs hold.
#[derive(Default)]
pub struct Flocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Lives of the MDT that are over, and evictions.
    life: u64,
    /// Bounded by the number of waiting programs.
    waiting: FxHashMap<Cookie, Waiting>,
    /// Bounded by the number of locks that the MDT grants one client.
    held: FxHashMap<Owner, Vec<Held>>,
    /// Requests whose program stopped waiting, latest last.
    abandoned: VecDeque<Cookie>,
}

struct Waiting {
    grant: oneshot::Sender<()>,
    fid: Fid,
    flock: Flock,
    mode: Mode,
}

/// Owner of locks on a file.
type Owner = (Fid, u64, FlockKind);

/// A lock of an owner: bytes `start..=end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    start: u64,
    end: u64,
    pid: u32,
    mode: Mode,
}

/// A request for a lock, from [`Flocks::begin`].
pub struct Begun {
    /// Its handle.
    pub cookie: Cookie,
    /// Life of the MDT in which it was made.
    pub life: u64,
    /// Reports the grant. Closes without a message if the MDT was restarted or evicted this client.
    pub granted: oneshot::Receiver<()>,
}

impl Flocks {
    /// Registers a request.
    pub fn begin(&self, fid: Fid, flock: Flock, mode: Mode) -> Begun {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        if flock.kind == FlockKind::Flock {
            // The MDT drops a lock of another mode first, even if it then refuses the request.
            let owner = (fid, flock.owner, flock.kind);
            if state.held.get(&owner).is_some_and(|held| held.iter().any(|one| one.mode != mode)) {
                state.held.remove(&owner);
            }
        }
        if mode == Mode::Nl {
            state.carve(fid, flock);
        }
        let cookie = state.next_cookie();
        state.waiting.insert(cookie, Waiting { grant, fid, flock, mode });
        Begun { cookie, life: state.life, granted }
    }

    /// Ends the wait of a request after its reply.
    pub fn answered(&self, cookie: Cookie) {
        self.state.lock().waiting.remove(&cookie);
    }

    /// Records a lock that the MDT granted with its reply. Returns false if the life of the MDT in
    /// which it was requested is over: the lock may be lost, and has to be requested again.
    pub fn locked(&self, life: u64, fid: Fid, flock: Flock, mode: Mode) -> bool {
        let mut state = self.state.lock();
        if state.life != life {
            return false;
        }
        state.hold(fid, flock, mode);
        true
    }

    /// Abandons a request. Returns whether it was still waiting.
    pub fn end(&self, cookie: Cookie) -> bool {
        let mut state = self.state.lock();
        if state.waiting.remove(&cookie).is_none() {
            return false;
        }
        if state.abandoned.len() == ABANDONED_MAX {
            state.abandoned.pop_front();
        }
        state.abandoned.push_back(cookie);
        true
    }

    /// Reports the grant of a lock to the waiting program. Returns `false` if the program has
    /// stopped waiting; the lock is to be cancelled then. The MDT may report a grant twice.
    pub fn granted(&self, cookie: Cookie) -> bool {
        let mut state = self.state.lock();
        if let Some(Waiting { grant, fid, flock, mode }) = state.waiting.remove(&cookie) {
            if grant.send(()).is_err() {
                return false;
            }
            state.hold(fid, flock, mode);
            return true;
        }
        !state.abandoned.contains(&cookie)
    }

    /// Records that an owner releases its locks in a range of a file.
    pub fn released(&self, fid: Fid, flock: Flock) {
        self.state.lock().carve(fid, flock);
    }

    /// Begins another life of the MDT, which was restarted or evicted this client. Waiting programs
    /// must repeat their requests. The locks held stay recorded.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        state.life += 1;
    }

    /// Returns requests for all locks held.
    pub fn relocks(&self) -> Vec<Enqueue> {
        let mut state = self.state.lock();
        let held: Vec<(Owner, Held)> =
            state.held.iter().flat_map(|(owner, held)| held.iter().map(|one| (*owner, *one))).collect();
        let request = |((fid, owner, kind), Held { start, end, pid, mode })| {
            let policy = Policy::Flock(Flock { start, end, owner, pid, kind });
            let flags = Flags { nowait: true, ..Flags::default() };
            Enqueue { flags, ..Enqueue::new(Resource::flock(fid), mode, policy, state.next_cookie()) }
        };
        held.into_iter().map(request).collect()
    }

    /// Drops locks that were lost.
    pub fn lost<'a>(&self, locks: impl IntoIterator<Item = &'a Enqueue>) {
        let mut state = self.state.lock();
        let mut count = 0;
        for lock in locks {
            if let Policy::Flock(flock) = lock.policy {
                state.carve(lock.resource.fid, flock);
                count += 1;
            }
        }
        if count > 0 {
            tracing::warn!("the MDT was restarted or evicted this client: {count} file locks of programs are lost");
        }
    }
}

impl State {
    fn next_cookie(&mut self) -> Cookie {
        self.last += 1;
        Cookie(FLOCK | self.last)
    }

    /// Replaces the owner's locks in the range.
    fn hold(&mut self, fid: Fid, flock: Flock, mode: Mode) {
        self.carve(fid, flock);
        if mode == Mode::Nl {
            return;
        }
        let Flock { mut start, mut end, owner, pid, kind } = flock;
        let held = self.held.entry((fid, owner, kind)).or_default();
        // Merges with adjacent locks, as the MDT does.
        held.retain(|one| {
            let same = (one.pid, one.mode) == (pid, mode);
            let before = same && one.end.checked_add(1) == Some(start);
            let after = same && end.checked_add(1) == Some(one.start);
            (start, end) = (if before { one.start } else { start }, if after { one.end } else { end });
            !before && !after
        });
        held.push(Held { start, end, pid, mode });
    }

    /// Removes the owner's locks in the range.
    fn carve(&mut self, fid: Fid, flock: Flock) {
        let key = (fid, flock.owner, flock.kind);
        let Some(held) = self.held.get_mut(&key) else { return };
        let Flock { start, end, .. } = flock;
        let parts = |one: &Held| {
            let before = (one.start < start).then(|| Held { end: one.end.min(start - 1), ..*one });
            let after = (one.end > end).then(|| Held { start: one.start.max(end + 1), ..*one });
            [before, after].into_iter().flatten()
        };
        *held = held.iter().flat_map(parts).collect();
        if held.is_empty() {
            self.held.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(1, 1);

    fn flock(start: u64, end: u64, kind: FlockKind) -> Flock {
        Flock { start, end, owner: 7, pid: 1, kind }
    }

    /// Takes a lock that the MDT grants at once.
    fn take(flocks: &Flocks, flock: Flock, mode: Mode) {
        let begun = flocks.begin(FILE, flock, mode);
        flocks.answered(begun.cookie);
        assert!(flocks.locked(begun.life, FILE, flock, mode));
    }

    fn held(flocks: &Flocks) -> Vec<(u64, u64, Mode)> {
        let range = |lock: &Enqueue| match lock.policy {
            Policy::Flock(f) => (f.start, f.end, lock.mode),
            _ => panic!("{lock:?}"),
        };
        let mut held: Vec<_> = flocks.relocks().iter().map(range).collect();
        held.sort_unstable();
        held
    }

    #[test]
    fn fcntl_locks_are_recorded_by_range() {
        let flocks = Flocks::default();
        let posix = |start, end| flock(start, end, FlockKind::Posix);
        take(&flocks, posix(10, 19), Mode::Pw);
        take(&flocks, posix(20, 29), Mode::Pw);
        take(&flocks, posix(0, 9), Mode::Pw);
        assert_eq!(held(&flocks), [(0, 29, Mode::Pw)]);
        take(&flocks, posix(5, 6), Mode::Pr);
        take(&flocks, posix(28, u64::MAX), Mode::Pr);
        assert_eq!(held(&flocks), [(0, 4, Mode::Pw), (5, 6, Mode::Pr), (7, 27, Mode::Pw), (28, u64::MAX, Mode::Pr)]);
        take(&flocks, posix(0, 30), Mode::Nl);
        assert_eq!(held(&flocks), [(31, u64::MAX, Mode::Pr)]);
        flocks.released(FILE, posix(0, u64::MAX));
        assert_eq!(held(&flocks), []);
    }

    #[test]
    fn flock_of_another_mode_replaces_the_lock_even_if_it_is_refused() {
        let flocks = Flocks::default();
        let whole = flock(0, u64::MAX, FlockKind::Flock);
        take(&flocks, whole, Mode::Pr);
        take(&flocks, whole, Mode::Pr);
        assert_eq!(held(&flocks), [(0, u64::MAX, Mode::Pr)]);
        let refused = flocks.begin(FILE, whole, Mode::Pw);
        flocks.answered(refused.cookie);
        assert_eq!(held(&flocks), []);
    }

    #[test]
    fn grant_of_an_earlier_life_is_requested_again() {
        let flocks = Flocks::default();
        let whole = flock(0, u64::MAX, FlockKind::Posix);
        let mut waits = flocks.begin(FILE, whole, Mode::Pw);
        assert!(flocks.granted(waits.cookie) && waits.granted.try_recv().is_ok());
        assert_eq!(held(&flocks).len(), 1);
        let (early, mut waiting) = (flocks.begin(FILE, whole, Mode::Pr), flocks.begin(FILE, whole, Mode::Pr));
        flocks.forget();
        assert!(!flocks.locked(early.life, FILE, whole, Mode::Pr));
        assert!(waiting.granted.try_recv().is_err() && flocks.granted(waiting.cookie), "reported and forgotten");
        assert_eq!(held(&flocks), [(0, u64::MAX, Mode::Pw)], "the program has it still");
        flocks.lost(&flocks.relocks());
        assert_eq!(held(&flocks), []);
    }
}
