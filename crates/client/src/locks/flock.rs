//! Client-side state of programs' file locks: the waiting requests, and the owners of locks.

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
    /// Bounded by the number of owners that have not released all their locks.
    owners: FxHashSet<(Fid, u64, FlockKind)>,
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
        self.state.lock().owners.insert((fid, owner, kind));
    }

    /// Notes that the owner releases its locks on the file.
    pub fn released(&self, fid: Fid, owner: u64, kind: FlockKind) {
        self.state.lock().owners.remove(&(fid, owner, kind));
    }

    /// Drops all state, because the MDT was restarted or evicted this client. The locks are lost,
    /// and waiting programs must repeat their requests.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        if !state.owners.is_empty() {
            tracing::warn!(
                "the MDT was restarted or evicted this client: {} owners of file locks lost their locks",
                state.owners.len()
            );
            state.owners.clear();
        }
    }
}
