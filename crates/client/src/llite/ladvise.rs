//! Advice of a program about its use of a file (`llapi_ladvise`): lockahead.

use sheen_wire::{Errno, Result, ldlm::Mode, mds::flags};

use super::with_layout::Attempt;
use crate::{Client, LockedAhead, OpenFile};

impl Client {
    /// Requests locks on exactly the bytes `start..=last` of a file (`u64::MAX`: to the largest
    /// offset), for writing or for reading: Lustre's lockahead. Like other locks, they stay until
    /// the OST revokes them. `wait`: returns when the locks are granted. Otherwise the OSTs do not
    /// revoke conflicting locks, and the caller does not learn whether a lock was granted.
    ///
    /// A file without objects, because it was never opened for writing, has nothing to lock.
    ///
    /// # Errors
    /// EINVAL: the range is empty. EBADF: for writing, but the file is not open for writing.
    /// ENOLCK: too many locks. Any error of the OSTs.
    pub async fn lock_ahead(
        &self,
        file: &OpenFile,
        start: u64,
        last: u64,
        write: bool,
        wait: bool,
    ) -> Result<LockedAhead> {
        if last < start || file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        if write && !flags::writes(file.flags()) {
            return Err(Errno::EBADF);
        }
        // Ranges without objects are left out. The LAYOUT lock is not in use during the wait for
        // other clients' locks.
        let mode = if write { Mode::Pw } else { Mode::Pr };
        self.with_layout("lock_ahead", file, |_| async {
            let placed = self.place(file).await?;
            let Some(layout) = placed.map(|placed| placed.layout) else { return Ok(Attempt::Done(LockedAhead::Sent)) };
            Ok(Attempt::Done(self.lov.lock_ahead(&layout, (start, last), mode, wait).await?))
        })
        .await
    }
}
