//! Client-side state of programs' file locks: the waiting requests, and the owners that ever held a
//! lock.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sheen_wire::{
    Fid,
    ldlm::{Cookie, FlockKind},
};
use tokio::sync::oneshot;

/// Marks the handles of this module. They differ from the engine's and from those of
/// `intent_locks`.
const FLOCK: u64 = 1 << 61;
/// Maximum number of remembered owners. Beyond it, each close asks the MDT to drop locks.
const OWNERS_MAX: usize = 65_536;

/// Maximum number of remembered abandoned requests. A grant that crossed the cancellation arrives
/// within a round trip.
const ABANDONED_MAX: usize = 256;

/// The programs that wait for file locks, and the owners that may hold some.
#[derive(Default)]
pub struct Flocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Bounded by the number of waiting programs.
    waiting: FxHashMap<Cookie, oneshot::Sender<()>>,
    owners: FxHashSet<(Fid, u64, FlockKind)>,
    /// Whether owners that are not in `owners` may hold locks.
    overflow: bool,
    /// Requests whose program stopped waiting, latest last.
    abandoned: VecDeque<Cookie>,
}

impl Flocks {
    /// Registers a request. Returns its handle and a channel that reports the grant. The channel
    /// closes without a message if the MDT was restarted or evicted this client.
    pub fn begin(&self) -> (Cookie, oneshot::Receiver<()>) {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        state.last += 1;
        let cookie = Cookie(FLOCK | state.last);
        state.waiting.insert(cookie, grant);
        (cookie, granted)
    }

    /// Ends the wait of a request after its reply.
    pub fn answered(&self, cookie: Cookie) {
        self.state.lock().waiting.remove(&cookie);
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
        if let Some(grant) = state.waiting.remove(&cookie) {
            return grant.send(()).is_ok();
        }
        !state.abandoned.contains(&cookie)
    }

    /// Notes that the owner holds a lock on the file, or may soon hold one.
    pub fn note(&self, fid: Fid, owner: u64, kind: FlockKind) {
        let mut state = self.state.lock();
        if state.owners.len() < OWNERS_MAX {
            state.owners.insert((fid, owner, kind));
        } else if !state.owners.contains(&(fid, owner, kind)) {
            state.overflow = true;
        }
    }

    /// Returns whether the owner may hold locks on the file, and forgets the owner.
    pub fn take(&self, fid: Fid, owner: u64, kind: FlockKind) -> bool {
        let mut state = self.state.lock();
        state.owners.remove(&(fid, owner, kind)) || state.overflow
    }

    /// Drops all state, because the MDT was restarted or evicted this client. The locks are lost,
    /// and waiting programs must repeat their requests.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        state.overflow = false;
        if !state.owners.is_empty() {
            tracing::warn!(
                "the MDT was restarted or evicted this client: {} owners of file locks lost their locks",
                state.owners.len()
            );
            state.owners.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_of_owners_ends_when_the_locks_are_lost() {
        let flocks = Flocks::default();
        let file = Fid::new(1, 1);
        for owner in 0..=OWNERS_MAX as u64 {
            flocks.note(file, owner, FlockKind::Posix);
        }
        let unknown = u64::MAX;
        assert!(flocks.take(file, unknown, FlockKind::Posix), "any owner may have locks");
        flocks.forget();
        assert!(!flocks.take(file, unknown, FlockKind::Posix), "no owner has locks");
    }
}
