//! Batched close requests to the MDT.
//!
//! A file that was opened without a request to the MDT needs a close request only if it was read,
//! for its access time. A file that the MDT has opened (a new file, a directory) needs one to
//! release the handle. The first close is sent at once. Further closes wait for [`GATHER`] and then
//! travel in one request. So a program that reads or creates many small files costs the MDT one
//! request for hundreds of closes.
//!
//! Invariants:
//! * each close carries its age, also when it is sent late or again ([`Request::delay`]). So the
//!   access time is the time of the close, and a later change of the access time is not undone;
//! * before this client returns the attributes of a file that was read, it sends the file's pending
//!   close;
//! * an access time that the MDT has answered survives its crash: the close is replayed;
//! * at most [`CLOSED_MAX`] closes are pending;
//! * a handle is pending only under a LAYOUT lock on its file, and is released before that lock is
//!   cancelled ([`crate::lock_owners::MdtLocks`]). So another client that removes the file, swaps
//!   its layout or adds a mirror sees the same as if the close had been sent at once.

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
    Errno, Fid, Result,
    mds::{CLOSED_MAX, Closed, NO_HANDLE, Reply, Request},
};

use crate::{cache::Cache, locks::LockRef, mdc::Mdc};

/// How long closes wait for each other. Short for a client that looks at the access time, and long
/// enough for a few hundred small files.
const GATHER: Duration = Duration::from_millis(20);

/// A pending close.
#[derive(Clone, Copy)]
struct Close {
    fid: Fid,
    handle: u64,
    /// Time of the close, if the file was read.
    read: Option<Instant>,
}

/// The pending closes of a mount.
pub struct Closes {
    rt: Rt,
    mdc: Arc<Mdc>,
    cache: Arc<Cache>,
    state: Mutex<State>,
    /// Whether any close is pending.
    some: AtomicBool,
}

#[derive(Default)]
struct State {
    files: Vec<Close>,
    /// Whether a task will send the closes after [`GATHER`].
    gathering: bool,
}

impl Closes {
    /// Creates an empty queue.
    pub fn new(rt: &Rt, mdc: &Arc<Mdc>, cache: &Arc<Cache>) -> Arc<Closes> {
        let (rt, mdc, cache) = (rt.clone(), mdc.clone(), cache.clone());
        Arc::new(Closes { rt, mdc, cache, state: Mutex::default(), some: AtomicBool::new(false) })
    }

    /// Closes a file: sends the close now, or queues it. `lock`: on the file's LAYOUT; without it,
    /// a handle is not queued.
    ///
    /// # Errors
    /// The error of the MDT, if the close is sent now.
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
        // The lock must not be in use while the request to the MDT is in flight.
        drop(lock);
        self.tell(files).await
    }

    /// Whether any close is pending.
    pub fn any(&self) -> bool {
        self.some.load(SeqCst)
    }

    /// Sends all pending closes if a read of `fid` is among them, before its attributes are
    /// returned.
    pub async fn tell_reads_of(&self, fid: Fid) {
        let files = self.with(fid, |close| close.read.is_some());
        let _ = self.tell(files).await; // a failure loses only access times, and handles that the MDT drops with this client's export
    }

    /// Sends all pending closes if one of `fid` is among them, before its name is removed.
    pub async fn tell_of(&self, fid: Fid) {
        let files = self.with(fid, |_| true);
        let _ = self.tell(files).await; // as above
    }

    /// Sends all pending closes if a handle of `fid` is among them. Called before the LAYOUT lock
    /// of `fid` is cancelled, for which another client may wait.
    pub fn send_closes_of(self: &Arc<Self>, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        let files = self.with(fid, |close| close.handle != NO_HANDLE);
        if files.is_empty() {
            return None;
        }
        let request = self.request(files);
        let import = self.mdc.import().clone();
        Some(Box::pin(async move {
            // If the request fails, the MDT has dropped this client and its handles.
            let _ = import.request(request).urgent().send().await;
        }))
    }

    /// Sends all pending closes.
    ///
    /// # Errors
    /// The error of the MDT.
    pub async fn tell_all(&self) -> Result<()> {
        let files = self.take(&mut self.state.lock());
        self.tell(files).await
    }

    /// Sends pending closes every [`GATHER`] until none is left.
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

    /// Takes all pending closes if one of `fid` that satisfies `is` is among them.
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
        let age = |at: Instant| u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
        let closed = |close: Close| Closed { fid: close.fid, handle: close.handle, read: close.read.map(age) };
        Request::Close { files: files.into_iter().map(closed).collect() }
    }

    async fn tell(&self, files: Vec<Close>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        // The MDT decides whether access times change, because it knows their previous values.
        let Reply::Attrs(attrs) = self.mdc.request(self.request(files)).reply().await? else {
            return Err(Errno::EPROTO);
        };
        let mut meta = self.cache.meta.lock();
        attrs.iter().for_each(|attr| meta.accessed(attr));
        Ok(())
    }
}
