//! The files of which a migration or a swap of layouts is under way, and the order of its requests
//! to the OSTs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_wire::Fid;
use tokio::sync::Notify;

/// Files of which a migration or a swap is under way.
#[derive(Default)]
pub(crate) struct Relayouts {
    files: Mutex<BTreeSet<Fid>>,
    ended: Notify,
    /// Number of the last request.
    requests: AtomicU64,
}

/// One such file. Dropping this ends the entry.
pub(crate) struct RelayoutGuard<'a> {
    of: &'a Relayouts,
    fid: Fid,
}

impl Relayouts {
    /// Enters the file. `None`: a migration or swap of it is already under way.
    pub fn begin(&self, fid: Fid) -> Option<RelayoutGuard<'_>> {
        let is_first = self.files.lock().insert(fid);
        is_first.then(|| RelayoutGuard { of: self, fid })
    }

    /// As [`Relayouts::begin`], after waiting until none is under way.
    pub async fn turn(&self, fid: Fid) -> RelayoutGuard<'_> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(guard) = self.begin(fid) {
                return guard;
            }
            ended.await;
        }
    }

    /// Returns the number of the next request to an OST. The requests about one file have rising
    /// numbers, because the file is entered here meanwhile.
    pub fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed) + 1
    }
}

impl Drop for RelayoutGuard<'_> {
    fn drop(&mut self) {
        self.of.files.lock().remove(&self.fid);
        self.of.ended.notify_waiters();
    }
}
