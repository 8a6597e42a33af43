//! The space and inodes of an MDT.

use sheen_wire::{Errno, Result, StatFs};
use tracing::{info, warn};

use crate::mdt::Mdt;
use crate::state::reserve::{Reserve, Shortage};

/// Disk space that one more inode with its directory entry takes, in bytes. Determines the number
/// of free inodes. An inode and an entry take about 300 bytes; half-full pages of the B-tree double
/// this, and the pages that a commit copies double it again.
const BYTES_PER_INODE: u64 = 1024;

/// Returns the space and inodes of the MDT.
pub(crate) fn statfs(mdt: &Mdt) -> StatFs {
    let files = mdt.core.lock().ns.files();
    space(mdt, files)
}

/// As [`statfs`], for `files` inodes in use.
pub(crate) fn space(mdt: &Mdt, files: u64) -> StatFs {
    let disk = mdt.share.of(mdt.dir.statvfs().unwrap_or_default());
    let room = disk.bavail.saturating_mul(u64::from(disk.bsize)) / BYTES_PER_INODE;
    let free = mdt.reserve.inodes_left(files).unwrap_or(room);
    StatFs { files: files.saturating_add(free), ffree: free, ..disk }
}

impl Mdt {
    /// Checks that the disk has space for a new inode, name or attribute.
    ///
    /// # Errors
    /// ENOSPC.
    pub(crate) fn check_space(&self) -> Result<()> {
        if !self.reserve.is_short() {
            return Ok(());
        }
        // Others may have freed space on the disk.
        self.watch_space();
        let left = self.reserve.inodes_left(self.core.lock().ns.files());
        if left == Some(0) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Notes whether the disk has space for new inodes.
    pub(crate) fn watch_space(&self) {
        match self.with_reserve(Reserve::update).flatten() {
            Some(Shortage::Began) => self.warn_of_full_disk(),
            Some(Shortage::Ended) => {
                info!(
                    "{}: the disk of {} has space again: new files are accepted",
                    self.name,
                    self.config.dir.display()
                );
            }
            None => {}
        }
    }

    fn warn_of_full_disk(&self) {
        let dir = self.config.dir.display();
        warn!("{}: the disk of {dir} is full: new files fail with ENOSPC, removals go on", self.name);
    }

    /// Frees a part of the reserve if the disk is full. Returns whether a commit that failed may
    /// succeed now.
    pub(crate) fn release_reserve(&self) -> bool {
        let was_short = self.reserve.is_short();
        let is_released = self.with_reserve(Reserve::release).unwrap_or(false);
        if is_released && !was_short {
            self.warn_of_full_disk();
        }
        is_released
    }

    /// Calls `work` with the reserve, the disk's space and the number of inodes. `None`: the disk
    /// does not report its space.
    fn with_reserve<T>(&self, work: impl FnOnce(&Reserve, &StatFs, u64) -> T) -> Option<T> {
        let files = self.core.lock().ns.files();
        self.rt.block_in_place(|| Some(work(&self.reserve, &self.dir.statvfs().ok()?, files)))
    }
}
