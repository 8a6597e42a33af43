//! Advice of a program on how it will use a file (`llapi_ladvise`).

use sheen_wire::{Errno, Result, ldlm::Mode, mds::flags};

use crate::{Client, LockedAhead, OpenFile};

impl Client {
    /// Asks for locks on exactly the bytes `start..=last` of a file (`u64::MAX`: to the end of all
    /// files), for writing or for reading: Lustre's lockahead. They are kept, as others are, until
    /// somebody else wants them. `wait`: until they are there; else nobody who is in the way is
    /// asked to give way, and whether a lock came nobody says.
    ///
    /// A file without objects, because it was never opened for writing, has nothing to lock.
    ///
    /// # Errors
    /// EINVAL: the range is empty. EBADF: for writing, but the file is not open for that. ENOLCK:
    /// too many locks. What the OSTs answer.
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
        // What has no objects yet is left out, and the layout's lock is not in use while others'
        // locks are waited for.
        let mode = if write { Mode::Pw } else { Mode::Pr };
        let mut moves = 0;
        loop {
            let placed = self.place(file).await?;
            let Some(layout) = placed.map(|placed| placed.layout) else { return Ok(LockedAhead::Sent) };
            match self.lov.lock_ahead(&layout, (start, last), mode, wait).await {
                Err(Errno::MOVED) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                answer => return answer,
            }
        }
    }
}
