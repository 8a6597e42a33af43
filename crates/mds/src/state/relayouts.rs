//! The files of which a migration or a swap of layouts is under way.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sheen_wire::Fid;
use tokio::sync::Notify;

/// Files of which a migration or a swap is under way.
#[derive(Default)]
pub(crate) struct Moving {
    files: Mutex<BTreeSet<Fid>>,
    ended: Notify,
}

/// One such file. Dropping this ends the entry.
pub(crate) struct Mover<'a> {
    of: &'a Moving,
    fid: Fid,
}

impl Moving {
    /// Enters the file. `None`: a migration or swap of it is already under way.
    pub fn begin(&self, fid: Fid) -> Option<Mover<'_>> {
        let is_first = self.files.lock().insert(fid);
        is_first.then(|| Mover { of: self, fid })
    }

    /// As [`Moving::begin`], after waiting until none is under way.
    pub async fn turn(&self, fid: Fid) -> Mover<'_> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(mover) = self.begin(fid) {
                return mover;
            }
            ended.await;
        }
    }
}

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        self.of.files.lock().remove(&self.fid);
        self.of.ended.notify_waiters();
    }
}
