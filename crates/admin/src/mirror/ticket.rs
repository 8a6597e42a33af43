//! The right to write single mirrors of a file.

use std::{fs::File, os::fd::BorrowedFd};

use sheen_layout::{Composite, Layout};
use sheen_wire::{Errno, Result, mirror::MirrorChange};

use super::{
    mirrored_file::{MirroredFile, NamedFile},
    single::as_mirror,
};

/// The right to write some mirrors, valid as long as no program writes to the file.
#[derive(Debug)]
pub struct Ticket {
    mirrors: Vec<u16>,
    before: Layout,
    begun: Layout,
}

impl Ticket {
    /// Makes the mirrors stale and gives them objects up to the offset `end`. `before`: the present
    /// layout of the file.
    ///
    /// # Errors
    /// EBUSY: the layout was changed at the same moment. EUCLEAN: no other mirror is up to date.
    /// Otherwise the errno of a failed system call.
    pub fn take(file: &dyn MirroredFile, before: Layout, mirrors: &[u16], end: u64) -> Result<Ticket> {
        file.change(&MirrorChange::Resync { mirrors: mirrors.to_vec(), end })?;
        let begun = file.layout()?;
        let is_own = begun.follows(&before) && begun.mirror_state() == Composite::SYNC_PENDING;
        if is_own { Ok(Ticket { mirrors: mirrors.to_vec(), before, begun }) } else { Err(Errno::EBUSY) }
    }

    /// Returns the mirrors that may be written.
    pub fn mirrors(&self) -> &[u16] {
        &self.mirrors
    }

    /// Whether a mirror was up to date before.
    pub fn was_fresh(&self, mirror: u16) -> bool {
        self.before.fresh_mirrors().iter().any(|m| m.mirror_id() == mirror)
    }

    /// Returns the mirrors that are up to date while the ticket is valid.
    pub fn fresh_mirrors(&self) -> Vec<u16> {
        self.begun.fresh_mirrors().iter().map(|m| m.mirror_id()).collect()
    }

    /// Whether the ticket is valid while the file has this layout.
    pub fn is_valid_for(&self, layout: &Layout) -> bool {
        layout.generation() == self.begun.generation()
    }

    /// Opens mirrors for writing. Writes after the ticket has become void are refused (EBUSY).
    ///
    /// # Errors
    /// EBUSY: the ticket is void. Otherwise the errno of a failed system call.
    pub fn open(&self, file: &NamedFile<'_>, mirrors: &[u16]) -> Result<Vec<File>> {
        let files = mirrors.iter().map(|id| file.mirror(*id, true)).collect::<Result<Vec<_>>>()?;
        self.check(file)?;
        Ok(files)
    }

    /// Runs `what` while an open file is bound to a mirror, to change the mirror. Afterwards the
    /// file is bound to no mirror.
    ///
    /// # Errors
    /// EBUSY: the ticket does not cover the mirror, or is void. Otherwise as [`as_mirror`].
    pub fn write_to<T>(&self, file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.mirrors.contains(&id) {
            return Err(Errno::EBUSY);
        }
        as_mirror(file, id, || {
            self.check(&file)?;
            what()
        })
    }

    /// Checks that the ticket is valid after mirrors have been opened. They may be written as long
    /// as the layout is the same as when they were opened: the mount refuses later writes.
    fn check(&self, file: &dyn MirroredFile) -> Result<()> {
        if self.is_valid_for(&file.layout()?) { Ok(()) } else { Err(Errno::EBUSY) }
    }

    /// Declares the mirrors up to date.
    ///
    /// # Errors
    /// EBUSY: the ticket is void. Otherwise the errno of a failed system call.
    pub fn end(&self, file: &dyn MirroredFile, mirrors: &[u16]) -> Result<()> {
        let generation = self.begun.generation();
        // The time comes from mirrors that were not copied to, because stale mirrors do not count.
        let mtime = file.mtime()?;
        file.change(&MirrorChange::Resynced { generation, mirrors: mirrors.to_vec(), mtime })
    }
}
