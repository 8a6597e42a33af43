//! The right to write single mirrors of a file.

use std::{fs::File, path::Path};

use sheen_layout::{Composite, Layout};
use sheen_wire::{Errno, Result, mirror::Change};

use super::change::change;
use crate::file_system::FileSystem;

/// The right to write some mirrors, valid as long as no program writes to the file.
#[derive(Debug)]
pub struct Ticket {
    before: Layout,
    begun: Layout,
}

impl Ticket {
    /// Makes the mirrors stale and gives them objects up to the offset `end`.
    ///
    /// # Errors
    /// EBUSY: the layout was changed at the same moment. EUCLEAN: no other mirror is up to date.
    /// Otherwise the errno of a failed system call.
    pub fn take(fs: &dyn FileSystem, path: &Path, mirrors: &[u16], end: u64) -> Result<Ticket> {
        let before = fs.layout(path)?;
        change(fs, path, &Change::Resync { mirrors: mirrors.to_vec(), end })?;
        let begun = fs.layout(path)?;
        let is_own = begun.follows(&before) && begun.mirror_state() == Composite::SYNC_PENDING;
        if is_own { Ok(Ticket { before, begun }) } else { Err(Errno::EBUSY) }
    }

    /// Whether a mirror was up to date before.
    pub fn was_fresh(&self, mirror: u16) -> bool {
        self.before.fresh_mirrors().iter().any(|m| m.mirror_id() == mirror)
    }

    /// Returns the mirrors that are up to date while the ticket is valid.
    pub fn fresh_mirrors(&self) -> Vec<u16> {
        self.begun.fresh_mirrors().iter().map(|m| m.mirror_id()).collect()
    }

    /// Opens mirrors for writing. Writes after the ticket has become void are refused (EBUSY).
    ///
    /// # Errors
    /// EBUSY: the ticket is void. Otherwise the errno of a failed system call.
    pub fn open(&self, fs: &dyn FileSystem, path: &Path, mirrors: &[u16]) -> Result<Vec<File>> {
        let files = mirrors.iter().map(|id| fs.mirror(path, *id, true)).collect::<Result<Vec<_>>>()?;
        // The files may be written as long as the layout is the same as when they were opened.
        if fs.layout(path)?.generation() == self.begun.generation() { Ok(files) } else { Err(Errno::EBUSY) }
    }

    /// Declares the mirrors up to date.
    ///
    /// # Errors
    /// EBUSY: the ticket is void. Otherwise the errno of a failed system call.
    pub fn end(&self, fs: &dyn FileSystem, path: &Path, mirrors: &[u16]) -> Result<()> {
        let generation = self.begun.generation();
        // The time comes from mirrors that were not copied to, because stale mirrors do not count.
        let mtime = fs.mtime(path)?;
        change(fs, path, &Change::Resynced { generation, mirrors: mirrors.to_vec(), mtime })
    }
}
