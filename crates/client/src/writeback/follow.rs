//! Dirty data that outlived a restart of its OST and meets a sealed object. If the object has a new
//! name (a layout swap), the data is written there.
//!
//! An OST waits in its recovery for the dirty data of its clients, and seals nothing before. Only
//! clients in its own process are not awaited: such an OST does not know their locks after a
//! restart, so sealing does not wait for their flush.

use std::time::Duration;

use sheen_wire::{
    Bulk, Errno, Fid, Time,
    ost::{Part, Reply, Request},
};

use super::{Changed, Cost, Writeback};
use crate::failure::{Failure, Result};

/// Maximum number of lookups of the object's new name, which may not be decided yet.
const FOLLOWS_MAX: u32 = 16;
/// Pause before the n-th lookup: n times this.
const PAUSE: Duration = Duration::from_millis(10);

impl Writeback {
    /// Writes data of a file's object under its present name. Under a new name, the write is made
    /// durable at once, because an fsync of the file syncs other objects.
    ///
    /// # Errors
    /// MOVED: the object is sealed and has no new name. Otherwise the error of the OST.
    pub(super) async fn write_there(
        &self,
        file: Fid,
        object: Fid,
        mut parts: Vec<Part>,
        bulk: Bulk,
        cost: Cost,
        mtime: Time,
    ) -> Result<Changed> {
        let mut now = object;
        for n in 1..=FOLLOWS_MAX {
            let answer = self.write(file, &parts, &bulk, cost, mtime).await;
            if answer != Err(Failure::MOVED) {
                if answer.is_ok() && now != object {
                    self.osc.request(Request::Sync { objects: vec![now] }).urgent().send().await?;
                }
                return answer;
            }
            self.rt.sleep(PAUSE * n).await;
            let asked = Request::Follow { objects: vec![object] };
            match self.osc.request(asked).urgent().send().await.map(|response| response.body) {
                Ok(Reply::Objects(objects)) => now = objects.first().copied().unwrap_or(object),
                Ok(_) => return Err(Errno::EPROTO.into()),
                Err(failure) if failure == Failure::MOVED || failure.errno() == Some(Errno::EAGAIN) => {}
                Err(failure) => return Err(failure),
            }
            parts.iter_mut().for_each(|part| part.object = now);
        }
        Err(Failure::MOVED)
    }
}
