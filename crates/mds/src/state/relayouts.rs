//! The files of which a migration or a swap of layouts is under way.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sheen_wire::Fid;
use tokio::sync::Notify;

/// Files of which a migration or a swap is under way.
#[derive(Default)]
pub(crate) struct Relayouts {
    files: Mutex<BTreeSet<Fid>>,
    ended: Notify,
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
}

impl Drop for RelayoutGuard<'_> {
    fn drop(&mut self) {
        self.of.files.lock().remove(&self.fid);
        self.of.ended.notify_waiters();
    }
}
