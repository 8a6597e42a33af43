//! Order and durability of changes. Each change of a client over a network gets a transno, in the
//! order in which changes of the same bytes are made. A *commit* makes all changes so far durable,
//! and records the last transno. Clients retain their changes until then, and replay them if the
//! OST's host fails ([`crate::recovery`]).
//!
//! The OST commits every [`INTERVAL`] while there are changes that are not durable.
//!
//! A replay must not undo what became durable otherwise. So these requests are answered only after
//! a commit, if their objects have changed since the last one:
//! * the removal of objects: a replayed write would create them again;
//! * a seal: the file continues under another name, where other clients change it;
//! * a sync of an object that several clients have changed: a client may be gone when its change
//!   is needed to hide an earlier change of another client.
//!
//! Invariants:
//! * a change gets its transno after it is made and before its locks are released;
//! * nothing is committed before the clients have replayed the changes that were lost;
//! * changes of clients of this process get no transno, because such a client does not survive the
//!   host's failure.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_lnet::Nid;
use sheen_rpc::Export;
use sheen_rt::Rt;
use sheen_wire::{Fid, Result};
use tokio::sync::Notify;
use tracing::warn;

use crate::Ost;

/// Time between two commits.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// Number of changed objects from which the next commit begins at once.
const RECENT_MAX: usize = 65_536;

/// The changes since the last commit.
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Whether any client over a network has been on the durable list.
    has_clients: AtomicBool,
    /// Held during a commit.
    turn: tokio::sync::Mutex<()>,
    /// Wakes the task.
    pub wake: Arc<Notify>,
}

struct State {
    /// The last transno.
    last: u64,
    /// The objects that have changed since the last commit.
    recent: FxHashMap<Fid, Recent>,
}

struct Recent {
    /// The last transno at the last change.
    transno: u64,
    /// Export id of the only client that has changed the object. `None`: there are several.
    client: Option<u64>,
}

impl Commits {
    /// `first`: the transno before the first one.
    pub fn new(first: u64) -> Commits {
        Commits {
            state: Mutex::new(State { last: first, recent: FxHashMap::default() }),
            has_clients: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            wake: Arc::new(Notify::new()),
        }
    }

    /// Records that a client over a network may change objects.
    pub fn listed(&self) {
        self.has_clients.store(true, Relaxed);
    }

    /// Returns the last transno.
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Records a change that the client has made to these objects. Returns its transno; 0 for a
    /// client of this process.
    pub fn changed(&self, export: &Export, objects: impl Iterator<Item = Fid>) -> u64 {
        let is_local = export.nid() == Nid::Lo;
        if is_local && !self.has_clients.load(Relaxed) {
            return 0;
        }
        let mut state = self.state.lock();
        if !is_local {
            state.last += 1;
        }
        let transno = state.last;
        state.note(export.id(), objects);
        let is_full = state.recent.len() > RECENT_MAX;
        drop(state);
        if is_full {
            self.wake.notify_one();
        }
        if is_local { 0 } else { transno }
    }

    /// Records a change that the client with this export replayed to these objects.
    pub fn replayed(&self, export: u64, objects: impl IntoIterator<Item = Fid>) {
        let mut state = self.state.lock();
        // Only a later transno commits the change.
        state.last += 1;
        state.note(export, objects.into_iter());
    }

    /// Returns whether one of the objects has changed since the last commit.
    fn is_recent(&self, mut which: impl FnMut(Fid) -> bool) -> bool {
        self.state.lock().recent.keys().any(|object| which(*object))
    }

    /// Returns whether several clients have changed one of the objects since the last commit.
    fn is_shared(&self, objects: &[Fid]) -> bool {
        let state = self.state.lock();
        !state.recent.is_empty()
            && objects.iter().any(|object| state.recent.get(object).is_some_and(|recent| recent.client.is_none()))
    }

    /// Drops what is known of changes up to this transno.
    fn committed(&self, transno: u64) {
        self.state.lock().recent.retain(|_, recent| recent.transno > transno);
    }
}

impl State {
    fn note(&mut self, export: u64, objects: impl Iterator<Item = Fid>) {
        let transno = self.last;
        for object in objects {
            let recent = self.recent.entry(object).or_insert(Recent { transno, client: Some(export) });
            recent.transno = transno;
            if recent.client != Some(export) {
                recent.client = None;
            }
        }
    }
}

impl Ost {
    /// Makes all changes so far durable, once the changes that were lost are replayed.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub(crate) async fn commit(&self) -> Result<()> {
        let wanted = self.commits.last();
        self.recovery.replayed().await;
        let _turn = self.commits.turn.lock().await;
        if self.store.committed() >= wanted {
            return Ok(());
        }
        let last = self.commits.last();
        self.store.commit(last).await?;
        self.commits.committed(last);
        Ok(())
    }

    /// Makes the objects' changes durable before they are removed or sealed, or after they were, so
    /// that no client replays them.
    ///
    /// # Errors
    /// As [`Ost::commit`].
    pub(crate) async fn settle(&self, objects: &[Fid]) -> Result<()> {
        let is_recent = {
            let state = self.commits.state.lock();
            !state.recent.is_empty() && objects.iter().any(|object| state.recent.contains_key(object))
        };
        if is_recent || self.replays() { self.commit().await } else { Ok(()) }
    }

    /// Whether clients may still replay changes, now or after another failure of the host.
    fn replays(&self) -> bool {
        !self.recovery.is_ended() && !self.store.lost_epochs().is_empty()
    }

    /// As [`Ost::settle`], for all objects that `which` picks.
    ///
    /// # Errors
    /// As [`Ost::commit`].
    pub(crate) async fn settle_where(&self, which: impl FnMut(Fid) -> bool) -> Result<()> {
        if self.commits.is_recent(which) || self.replays() { self.commit().await } else { Ok(()) }
    }

    /// Commits after a sync of objects that several clients have changed.
    ///
    /// # Errors
    /// As [`Ost::commit`].
    pub(crate) async fn settle_shared(&self, objects: &[Fid]) -> Result<()> {
        if self.commits.is_shared(objects) { self.commit().await } else { Ok(()) }
    }
}

/// The task that commits. It ends with the OST.
pub(crate) async fn run(ost: Weak<Ost>, rt: Rt, wake: Arc<Notify>) {
    let mut failing = false;
    loop {
        let _ = rt.timeout(INTERVAL, wake.notified()).await;
        let Some(ost) = ost.upgrade() else { return };
        if ost.commits.state.lock().recent.is_empty() {
            continue;
        }
        match ost.locks.unless_stopping(ost.commit()).await {
            Err(_) => return,
            Ok(Ok(())) => failing = false,
            Ok(Err(errno)) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!(
                        "{}: cannot make changes durable: {errno}; clients retain them as long as they can; check the \
                         device",
                        ost.name
                    );
                }
            }
        }
    }
}
