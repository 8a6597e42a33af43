//! Files that were read, told to the MDT for their access times: many at a time where many are read.
//!
//! A file that is opened without asking the MDT is closed without asking, but for its access time. The first such close is told at once. Those
//! of the next moment ([`GATHER`]) wait for each other: a program that goes through small files costs the MDT a request for hundreds
//! of them.
//!
//! Invariants:
//! * each is told with its age, so that the access time is that of the close, and a later change of it is not undone;
//! * who asks this client for a file's attributes has it told first, if it still waits; at most [`ACCESSED_MAX`] do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Errno, Fid, Result,
    mds::{ACCESSED_MAX, Reply, Request},
};

use crate::{cache::Cache, mdc::Mdc};

/// How long closes wait for each other: little for who looks at an access time elsewhere, and some hundred small files.
const GATHER: Duration = Duration::from_millis(20);

/// Files that were read, of a mount.
pub struct Accessed {
    rt: Rt,
    mdc: Arc<Mdc>,
    cache: Arc<Cache>,
    state: Mutex<State>,
    /// Whether any wait.
    some: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Which, and when they were closed.
    files: Vec<(Fid, Instant)>,
    /// Somebody comes for them after [`GATHER`].
    gathering: bool,
}

impl Accessed {
    /// None yet.
    pub fn new(rt: &Rt, mdc: &Arc<Mdc>, cache: &Arc<Cache>) -> Arc<Accessed> {
        let (rt, mdc, cache) = (rt.clone(), mdc.clone(), cache.clone());
        Arc::new(Accessed { rt, mdc, cache, state: Mutex::default(), some: AtomicBool::new(false) })
    }

    /// A file was read and is closed.
    ///
    /// # Errors
    /// What the MDT answers, where it is told now.
    pub async fn note(self: &Arc<Self>, fid: Fid) -> Result<()> {
        let files = {
            let mut state = self.state.lock();
            let now = self.rt.now();
            match state.files.iter_mut().find(|(file, _)| *file == fid) {
                Some((_, at)) => *at = now,
                None => state.files.push((fid, now)),
            }
            let begins = !std::mem::replace(&mut state.gathering, true);
            if begins {
                drop(self.rt.spawn("accessed", self.clone().gather()));
            } else if state.files.len() < ACCESSED_MAX {
                self.some.store(true, SeqCst);
                return Ok(());
            }
            self.take(&mut state)
        };
        self.tell(files).await
    }

    /// Tells what waits, if `fid` is among it.
    pub async fn tell_of(&self, fid: Fid) {
        if self.some.load(SeqCst) {
            let files = {
                let mut state = self.state.lock();
                if state.files.iter().any(|(file, _)| *file == fid) { self.take(&mut state) } else { Vec::new() }
            };
            let _ = self.tell(files).await; // the access time is all that is lost
        }
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

    fn take(&self, state: &mut State) -> Vec<(Fid, Instant)> {
        self.some.store(false, SeqCst);
        std::mem::take(&mut state.files)
    }

    async fn tell(&self, files: Vec<(Fid, Instant)>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let now = self.rt.now();
        let age = |at: Instant| u32::try_from(now.since(at).as_micros()).unwrap_or(u32::MAX);
        let files = files.into_iter().map(|(fid, at)| (fid, age(at))).collect();
        // Whether the access time moves, the MDT decides: by what it was before.
        let Reply::Attrs(attrs) = self.mdc.call(Request::Accessed { files }).await? else { return Err(Errno::EPROTO) };
        let mut meta = self.cache.meta.lock();
        attrs.iter().for_each(|attr| meta.accessed(attr));
        Ok(())
    }
}
