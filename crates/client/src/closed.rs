//! Closed files, told to the MDT many at a time where many are closed.
//!
//! Of a file that is opened without asking the MDT it hears only if it was read, for the access
//! time; of one that it has opened itself (a new one, a directory) it gets the handle back. The
//! first such close is told at once. Those of the next moment ([`GATHER`]) wait for each other: a
//! program that goes through small files, or makes them, costs the MDT a request for hundreds of
//! them.
//!
//! Invariants:
//! * each is told with its age, so that the access time is that of the close, and a later change of
//!   it is not undone;
//! * who asks this client for the attributes of a file that was read has it told first, if it still
//!   waits; at most [`CLOSED_MAX`] do;
//! * a handle waits only under a lock on the file's LAYOUT, and does not wait any longer when that
//!   is given up ([`crate::cache::MdtLocks`]): for somebody who removes the file, exchanges its
//!   layout or adds a mirror it is closed, or its close is on its way, as if it had been told at
//!   once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rpc::BoxFuture;
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    mds::{CLOSED_MAX, Closed, NO_HANDLE, Reply, Request},
};

use crate::{cache::Cache, locks::LockRef, mdc::Mdc};

/// How long closes wait for each other: little for who looks at an access time elsewhere, and some
/// hundred small files.
const GATHER: Duration = Duration::from_millis(20);

/// A file that was closed.
#[derive(Clone, Copy)]
struct Close {
    fid: Fid,
    handle: u64,
    /// When it was closed, if it was read.
    read: Option<Instant>,
}

/// Files that were closed, of a mount.
pub struct Closes {
    rt: Rt,
    mdc: Arc<Mdc>,
    cache: Arc<Cache>,
    state: Mutex<State>,
    /// Whether any wait.
    some: AtomicBool,
}

#[derive(Default)]
struct State {
    files: Vec<Close>,
    /// Somebody comes for them after [`GATHER`].
    gathering: bool,
}

impl Closes {
    /// None yet.
    pub fn new(rt: &Rt, mdc: &Arc<Mdc>, cache: &Arc<Cache>) -> Arc<Closes> {
        let (rt, mdc, cache) = (rt.clone(), mdc.clone(), cache.clone());
        Arc::new(Closes { rt, mdc, cache, state: Mutex::default(), some: AtomicBool::new(false) })
    }

    /// A file is closed. `lock`: on its LAYOUT; without it a handle does not wait.
    ///
    /// # Errors
    /// What the MDT answers, where it is told now.
    pub async fn note(self: &Arc<Self>, fid: Fid, handle: u64, read: bool, lock: Option<LockRef>) -> Result<()> {
        let files = {
            let mut state = self.state.lock();
            let close = Close { fid, handle, read: read.then(|| self.rt.now()) };
            match state.files.iter_mut().find(|known| known.fid == fid && handle == NO_HANDLE) {
                Some(known) => known.read = close.read,
                None => state.files.push(close),
            }
            let begins = !std::mem::replace(&mut state.gathering, true);
            let may_wait = handle == NO_HANDLE || lock.is_some();
            if begins {
                drop(self.rt.spawn("closes", self.clone().gather()));
            } else if may_wait && state.files.len() < CLOSED_MAX {
                self.some.store(true, SeqCst);
                return Ok(());
            }
            self.take(&mut state)
        };
        // Not in use while the MDT is asked.
        drop(lock);
        self.tell(files).await
    }

    /// Whether any wait.
    pub fn any(&self) -> bool {
        self.some.load(SeqCst)
    }

    /// Tells what waits, if `fid` is among what was read: somebody asks for its attributes.
    pub async fn tell_reads_of(&self, fid: Fid) {
        let files = self.with(fid, |close| close.read.is_some());
        let _ = self.tell(files).await; // what is lost is the access time, and handles that the MDT gives up with this client
    }

    /// Tells what waits, if `fid` is among it: its name goes.
    pub async fn tell_of(&self, fid: Fid) {
        let files = self.with(fid, |_| true);
        let _ = self.tell(files).await; // as above
    }

    /// Gives handles back that wait, if one of `fid` is among them: the lock on its LAYOUT goes,
    /// and somebody may wait for it.
    pub fn give_back(self: &Arc<Self>, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        let files = self.with(fid, |close| close.handle != NO_HANDLE);
        if files.is_empty() {
            return None;
        }
        let request = self.request(files);
        let import = self.mdc.import().clone();
        Some(Box::pin(async move {
            // Should it fail, the MDT does not know this client any more.
            let _ = import.call_urgent(request.into(), Bulk::new()).await;
        }))
    }

    /// Tells what waits.
    ///
    /// # Errors
    /// What the MDT answers.
    pub async fn tell_all(&self) -> Result<()> {
        let files = self.take(&mut self.state.lock());
        self.tell(files).await
    }

    /// Comes for those that wait until there are none.
    async fn gather(self: Arc<Self>) {
        loop {
            self.rt.sleep(GATHER).await;
            let files = {
                let mut state = self.state.lock();
                state.gathering = !state.files.is_empty();
                self.take(&mut state)
            };
            if files.is_empty() {
                return;
            }
            let _ = self.tell(files).await;
        }
    }

    fn take(&self, state: &mut State) -> Vec<Close> {
        self.some.store(false, SeqCst);
        std::mem::take(&mut state.files)
    }

    /// All that wait, if one of `fid` that `is` is among them.
    fn with(&self, fid: Fid, is: impl Fn(&Close) -> bool) -> Vec<Close> {
        if !self.any() {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let is_there = state.files.iter().any(|close| close.fid == fid && is(close));
        if is_there { self.take(&mut state) } else { Vec::new() }
    }

    fn request(&self, files: Vec<Close>) -> Request {
        let now = self.rt.now();
        let age = |at: Instant| u32::try_from(now.since(at).as_micros()).unwrap_or(u32::MAX);
        let closed = |close: Close| Closed { fid: close.fid, handle: close.handle, read: close.read.map(age) };
        Request::Close { files: files.into_iter().map(closed).collect() }
    }

    async fn tell(&self, files: Vec<Close>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        // Whether access times move, the MDT decides: by what they were before.
        let Reply::Attrs(attrs) = self.mdc.call(self.request(files)).await? else { return Err(Errno::EPROTO) };
        let mut meta = self.cache.meta.lock();
        attrs.iter().for_each(|attr| meta.accessed(attr));
        Ok(())
    }
}
