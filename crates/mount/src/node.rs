//! Node ids of the kernel and FIDs; attributes as the kernel wants them.

use std::time::Duration;

use sheen_client::EntryAttr;
use sheen_fuse::{EntryOut, FileAttr};
use sheen_wire::{Fid, fid::ROOT};

/// The kernel's name for the root directory.
pub const ROOT_NODE: u64 = 1;
/// How long the kernel may believe what it was told: not at all, until locks arrive.
pub const VALID: Duration = Duration::ZERO;

/// The file that a node id names.
pub fn fid(nodeid: u64) -> Fid {
    if nodeid == ROOT_NODE { ROOT } else { Fid::from_ino(nodeid) }
}

/// The node id of a file.
pub fn nodeid(fid: Fid) -> u64 {
    if fid == ROOT { ROOT_NODE } else { fid.ino() }
}

/// `stat` for the kernel.
pub fn attr(e: &EntryAttr) -> FileAttr {
    let a = &e.attr;
    FileAttr {
        ino: a.fid.ino(),
        size: a.size,
        blocks: a.blocks,
        atime: a.atime,
        mtime: a.mtime,
        ctime: a.ctime,
        kind: a.kind,
        perm: a.perm,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: e.blksize,
    }
}

/// An entry for the kernel. FIDs are never used twice, so the generation is always 0.
pub fn entry(e: &EntryAttr) -> EntryOut {
    EntryOut { nodeid: nodeid(e.attr.fid), generation: 0, entry_valid: VALID, attr_valid: VALID, attr: attr(e) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_fids_name_each_other() {
        assert_eq!(fid(ROOT_NODE), ROOT);
        for f in [ROOT, Fid::new(sheen_wire::fid::SEQ_NORMAL, 1), Fid::new(0x2_0000_0777, 0x1ffff)] {
            assert_eq!(fid(nodeid(f)), f);
        }
    }
}
