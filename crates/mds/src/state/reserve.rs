//! Disk space that is set aside, so that a full disk does not stop the removals that free it.
//!
//! A file in the MDT's directory holds allocated blocks. If a commit fails on a full disk, the MDT
//! frees a part of them and repeats the commit. So changes that clients got a reply to reach the
//! disk, and removals go on.
//!
//! The MDT is *short of space* from the time when the disk has less free space than the reserve.
//! Then requests that add inodes, names or attributes fail with ENOSPC. This ends when the disk has
//! twice the reserve free, and the reserve is whole again.
//!
//! The file of a running store never shrinks: it uses the pages again that removals free. So an MDT
//! that is short of space admits new inodes on two conditions. It has clearly fewer of them than
//! when the space ran out, and at least half of the reserve. An MDT that starts short of space
//! compacts its store.
//!
//! A commit writes each page that it changes to a new place, and frees the old one only when it
//! ends. So the commits of an MDT that is short of space are small ([`COMMIT_OPS_MAX`]).

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sheen_rt::{Disk, File, OpenOptions};
use sheen_wire::mds::Request;
use sheen_wire::ost::Allocate;
use sheen_wire::{Errno, StatFs};

/// File of the reserve in the MDT's directory.
pub(crate) const RESERVE: &str = "reserve";
/// Size of the reserve, in bytes, but at most this part of the disk. A commit of a few thousand
/// operations fits.
const BYTES_MAX: u64 = 32 << 20;
const PART_OF_DISK_MAX: u64 = 8;
/// Number of operations after which a commit does not wait for the interval while the MDT is short
/// of space.
pub(crate) const COMMIT_OPS_MAX: u64 = 256;
/// Number of parts in which the reserve is freed.
const STEPS: u64 = 8;
/// Value of [`Reserve::full_at`] while there is enough space.
const ENOUGH: u64 = u64::MAX;

/// The reserve of an MDT.
pub(crate) struct Reserve {
    file: File,
    /// Size of the whole reserve, in bytes.
    bytes: u64,
    /// Allocated bytes.
    held: AtomicU64,
    /// Number of inodes when the space ran out.
    full_at: AtomicU64,
}

/// Begin or end of a shortage of space that [`Reserve::update`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// The MDT is short of space from now on.
    Began,
    /// There is enough space again.
    Ended,
}

impl Reserve {
    /// Opens the reserve of a directory that has `files` inodes, and allocates its space if the
    /// disk has enough. Blocks.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(disk: &Disk, dir: &Path, files: u64) -> io::Result<Reserve> {
        let space = disk.statvfs(dir)?;
        let file = disk.open(dir.join(RESERVE), OpenOptions::CREATE)?;
        let bytes = size(&space);
        let held = file.metadata()?.blocks512.saturating_mul(512).min(bytes);
        let reserve = Reserve { file, bytes, held: held.into(), full_at: ENOUGH.into() };
        reserve.update(&space, files);
        Ok(reserve)
    }

    /// Whether the MDT is short of space.
    pub fn is_short(&self) -> bool {
        self.full_at.load(Relaxed) != ENOUGH
    }

    /// Returns how many inodes can be added to `files` while the MDT is short of space. `None`: it
    /// is not.
    pub fn inodes_left(&self, files: u64) -> Option<u64> {
        let full_at = self.full_at.load(Relaxed);
        if full_at == ENOUGH {
            return None;
        }
        if self.held.load(Relaxed) < self.bytes / 2 {
            // The rest is for removals.
            return Some(0);
        }
        // Records differ in size, and a page of the store is rarely full.
        let slack = 64 + full_at / 64;
        Some(full_at.saturating_sub(slack).saturating_sub(files))
    }

    /// Adapts the state to the disk's space; `files`: present number of inodes. Blocks for the
    /// allocation when there is enough space again.
    pub fn update(&self, space: &StatFs, files: u64) -> Option<Shortage> {
        let free = free(space);
        let missing = self.bytes.saturating_sub(self.held.load(Relaxed));
        let is_short = self.is_short();
        if is_short || missing > 0 {
            // More to end a shortage than to avoid one, so that the state does not alternate.
            let left = if is_short { 2 * self.bytes } else { self.bytes };
            if free >= missing + left && self.allocate() {
                return (self.full_at.swap(ENOUGH, Relaxed) != ENOUGH).then_some(Shortage::Ended);
            }
        } else if free >= self.bytes {
            return None;
        }
        self.note_shortage(files).then_some(Shortage::Began)
    }

    /// Returns whether the shortage begins.
    fn note_shortage(&self, files: u64) -> bool {
        self.full_at.compare_exchange(ENOUGH, files, Relaxed, Relaxed).is_ok()
    }

    /// Allocates the whole reserve. Returns whether it is there.
    fn allocate(&self) -> bool {
        let reserve = Allocate::Reserve { keep_size: false };
        let done = self.file.allocate(reserve, 0, self.bytes).and_then(|()| self.file.sync_data_blocking());
        // Without preallocation, the MDT still stops early to add inodes.
        let there = matches!(done.map_err(Errno::from), Ok(()) | Err(Errno::EOPNOTSUPP));
        if there {
            self.held.store(self.bytes, Relaxed);
        }
        there
    }

    /// Frees a part of the reserve if the disk is full, after a failed commit. `files`: present
    /// number of inodes. Returns whether the commit may succeed now. Blocks.
    pub fn release(&self, space: &StatFs, files: u64) -> bool {
        let held = self.held.load(Relaxed);
        if free(space) >= self.bytes || held == 0 {
            return false;
        }
        self.note_shortage(files);
        let left = held.saturating_sub(self.bytes / STEPS);
        let freed = self.file.set_len(left).is_ok();
        if freed {
            self.held.store(left, Relaxed);
        }
        freed
    }
}

/// Returns the size of a whole reserve on this disk, in bytes.
fn size(space: &StatFs) -> u64 {
    let total = space.blocks.saturating_mul(u64::from(space.bsize));
    (total / PART_OF_DISK_MAX).min(BYTES_MAX)
}

fn free(space: &StatFs) -> u64 {
    space.bavail.saturating_mul(u64::from(space.bsize))
}

/// Whether a request adds inodes, names or attributes. Others free space, or take little.
pub(crate) fn adds(request: &Request) -> bool {
    matches!(
        request,
        Request::Create { .. }
            | Request::OpenCreate { .. }
            | Request::TmpFile { .. }
            | Request::Link { .. }
            | Request::SetXattr { .. }
    )
}
