//! Repair of damaged blocks ([`crate::store`]) for the MDT. The MDT learns of them by the reply to
//! `QuotaWait`, reads the bytes from another mirror of the file, and sends them.
//!
//! The OST writes them under its own lock on the block. So clients have flushed their changes of
//! the block before, and no other request changes it meanwhile.

use std::time::Duration;

use sheen_objects::change;
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Mode, Policy, Resource},
    ost::DamagedBlock,
};

use crate::{
    Ost, Store,
    changes::{ObjectChange, Outcome},
};

/// Time that a repair waits for locks: longer than a client may take to cancel one. A group lock
/// may be held for hours.
const LOCK_MAX: Duration = Duration::from_secs(25);

/// Bytes for offset `at` of a damaged block.
struct Repair<'a> {
    object: Fid,
    block: DamagedBlock,
    at: u64,
    bytes: &'a Bulk,
}

impl ObjectChange for Repair<'_> {
    /// Excludes writes as well, because a repair must not undo one.
    fn wants(&self) -> Vec<(Resource, Mode, Policy)> {
        let extent = change::inside(self.block.offset, self.block.len);
        extent.map(|extent| (Resource::extent(self.object), Mode::Pw, extent)).into_iter().collect()
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.repair(self.object, &self.block, self.at, self.bytes)
    }
}

impl Ost {
    /// Writes bytes of a damaged block. After the last ones, the block is intact and durable.
    ///
    /// # Errors
    /// EAGAIN: other clients do not cancel their locks in time, or too many writes wait for locks.
    /// Others as [`Store::check_damaged`], [`Store::repair`] and [`Store::end_repair`].
    pub(crate) async fn repair(
        &self,
        export: &Export,
        object: Fid,
        block: DamagedBlock,
        at: u64,
        bytes: &Bulk,
    ) -> Result<()> {
        if at == block.offset {
            self.store.check_damaged(object, &block).await?;
        }
        let change = self.change(export, Repair { object, block, at, bytes }, true);
        match self.rt.timeout(LOCK_MAX, change).await {
            Ok(Ok(Outcome::Made(_))) => {}
            Ok(Ok(Outcome::LockFirst)) | Err(_) => return Err(Errno::EAGAIN),
            Ok(Err(errno)) => return Err(errno),
        }
        let is_last = at + bytes.len() as u64 == block.offset + block.len;
        if is_last { self.store.end_repair(object, &block).await } else { Ok(()) }
    }
}
