//! Commits on demand.
//!
//! The kernel gives a request that found no free ring entry to the next entry that commits, and to
//! no newly registered one. If all requests in user space wait, for example for a lock, no commit
//! comes. Then a thread on the same processor calls statfs(2) on the mount: the request takes one
//! of the new entries, is answered at once, and its commit fetches a request that waits.

use std::{path::PathBuf, sync::Arc, thread};

use parking_lot::Mutex;
use rustix::thread::CpuSet;

use crate::request::{Op, Request};

/// Causes commits on the queue of one processor.
#[derive(Debug)]
pub(crate) struct Nudger {
    cpu: usize,
    mountpoint: PathBuf,
    /// Thread ids of the callers.
    callers: Mutex<Vec<u32>>,
}

impl Nudger {
    pub(crate) fn new(cpu: usize, mountpoint: PathBuf) -> Arc<Nudger> {
        Arc::new(Nudger { cpu, mountpoint, callers: Mutex::default() })
    }

    /// Causes `count` commits, from a thread of its own: an earlier one may itself wait for an
    /// entry.
    pub(crate) fn start(self: &Arc<Nudger>, count: usize) {
        let nudger = self.clone();
        if let Err(e) = thread::Builder::new().name("fuse-nudge".into()).spawn(move || nudger.run(count)) {
            tracing::warn!("cannot start a thread: {e}; a request may wait until the next one on its processor ends");
        }
    }

    fn run(&self, count: usize) {
        if let Err(e) = bind_to(self.cpu) {
            tracing::debug!(cpu = self.cpu, "cannot bind a thread to its processor: {e}");
        }
        let me = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        self.callers.lock().push(me);
        for _ in 0..count {
            // The answer is an error, see `is_nudge`.
            let _ = rustix::fs::statfs(&self.mountpoint);
        }
        self.callers.lock().retain(|caller| *caller != me);
    }

    /// Whether a request serves for its commit alone.
    pub(crate) fn is_nudge(&self, request: &Request) -> bool {
        matches!(request.op, Op::StatFs) && self.callers.lock().contains(&request.header.pid)
    }
}

/// Binds the calling thread to a processor.
pub(crate) fn bind_to(cpu: usize) -> rustix::io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    rustix::thread::sched_setaffinity(None, &cpus)
}
