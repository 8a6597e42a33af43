//! Repair of damaged blocks, and of lost objects ([`crate::store`]), for the MDT. The MDT learns of
//! them by the reply to `QuotaWait`, reads the bytes from another mirror of the file, and sends
//! them.
//!
//! A lost object needs no lock: nothing changes it, and clients get no locks on it.
//!
//! The OST writes the bytes of a damaged block under its own lock on the block. So clients have
//! flushed their changes of the block before, and no other request changes it meanwhile.

use std::time::Duration;

use sheen_objects::change;
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Mode, Policy, Resource},
    ost::{DamagedBlock, Part, Recreate},
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

    /// Makes a step in which a lost object is made again.
    ///
    /// # Errors
    /// ENOSPC: the remaining space is granted to clients. ENOTCONN: the client has disconnected.
    /// Others as [`Store::confirm_lost`], [`Store::forget_lost`], [`Store::begin_copy`],
    /// [`Store::write_copy`] and [`Store::end_copy`].
    pub(crate) async fn recreate(&self, export: &Export, object: Fid, step: Recreate, bytes: &Bulk) -> Result<()> {
        let store = &self.store;
        match step {
            Recreate::Confirm => self.perhaps_blocking(true, || store.confirm_lost(object)),
            Recreate::Unknown { file } => self.perhaps_blocking(true, || store.forget_lost(object, file)),
            Recreate::Begin { copy, size } => {
                self.perhaps_blocking(true, || store.begin_copy(object, copy, size, export.id()))?;
                if export.is_ended() {
                    store.abort_copy_of(export.id()); // the server will not report that again
                    return Err(Errno::ENOTCONN);
                }
                Ok(())
            }
            Recreate::Write { copy, at } => {
                let parts = [Part { object, offset: at, len: bytes.len() as u32 }];
                let _space = self.reserve_for_write(export, &parts, 0)?;
                self.perhaps_blocking(true, || store.write_copy(object, copy, at, bytes))
            }
            Recreate::End { copy, mtime } => store.end_copy(object, copy, mtime).await,
            Recreate::Abort { copy } => {
                self.perhaps_blocking(true, || store.abort_copy(object, copy));
                Ok(())
            }
        }
    }
}
