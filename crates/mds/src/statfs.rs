//! The space and inodes of an MDT.

use sheen_wire::StatFs;

use crate::mdt::Mdt;

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
    let free = disk.bavail.saturating_mul(u64::from(disk.bsize)) / BYTES_PER_INODE;
    StatFs { files: files.saturating_add(free), ffree: free, ..disk }
}
