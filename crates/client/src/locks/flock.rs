//! Locks of programs, as far as the client keeps track of them: who waits, and who ever held one.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sheen_wire::{
    Fid,
    ldlm::{Cookie, FlockKind},
};
use tokio::sync::oneshot;

/// Handles of this module: beside the engine's, and apart from those of answers.
const FLOCK: u64 = 1 << 61;
/// Most owners kept in mind; with more, each close asks the MDT to drop locks.
const OWNERS_MAX: usize = 65_536;

/// Most requests kept in mind that were given up: a grant that crossed the giving up is told within
/// a round trip.
const ABANDONED_MAX: usize = 256;

/// Who waits for locks, and who may hold some.
#[derive(Default)]
pub struct Flocks {
    state: Mutex<State>,
    overflow: AtomicBool,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Bounded by the programs that wait.
    waiting: FxHashMap<Cookie, oneshot::Sender<()>>,
    owners: FxHashSet<(Fid, u64, FlockKind)>,
    /// Requests for whose grant nobody waits any more, latest last.
    abandoned: VecDeque<Cookie>,
}

impl Flocks {
    /// A handle for a request, and what tells of its grant; that ends without telling when the MDT
    /// has forgotten this client.
    pub fn begin(&self) -> (Cookie, oneshot::Receiver<()>) {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        state.last += 1;
        let cookie = Cookie(FLOCK | state.last);
        state.waiting.insert(cookie, grant);
        (cookie, granted)
    }

    /// The request is answered.
    pub fn answered(&self, cookie: Cookie) {
        self.state.lock().waiting.remove(&cookie);
    }

    /// Nobody waits for the request any more. Whether it was still waiting.
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

    /// A lock that was waited for is there. False: nobody waits for it any more. (The MDT may tell
    /// of one twice.)
    pub fn granted(&self, cookie: Cookie) -> bool {
        let mut state = self.state.lock();
        if let Some(grant) = state.waiting.remove(&cookie) {
            return grant.send(()).is_ok();
        }
        !state.abandoned.contains(&cookie)
    }

    /// The owner holds, or may soon hold, a lock on the file.
    pub fn note(&self, fid: Fid, owner: u64, kind: FlockKind) {
        let mut state = self.state.lock();
        if state.owners.len() < OWNERS_MAX {
            state.owners.insert((fid, owner, kind));
        } else if !state.owners.contains(&(fid, owner, kind)) {
            self.overflow.store(true, Relaxed);
        }
    }

    /// Whether the owner may hold locks on the file; it will not from now on.
    pub fn take(&self, fid: Fid, owner: u64, kind: FlockKind) -> bool {
        self.state.lock().owners.remove(&(fid, owner, kind)) || self.overflow.load(Relaxed)
    }

    /// The MDT has forgotten this client: the locks are lost, and who waits has to ask again.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        if !state.owners.is_empty() {
            tracing::warn!(
                "the MDT has forgotten this client: locks of {} programs on files are lost",
                state.owners.len()
            );
            state.owners.clear();
        }
    }
}
