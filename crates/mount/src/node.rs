//! Node ids of the kernel and FIDs; attributes as the kernel wants them.

use std::time::Duration;

use sheen_client::EntryAttr;
use sheen_fuse::{EntryOut, FileAttr, Statx};
use sheen_wire::{Fid, fid::ROOT};

/// The kernel's name for the root directory.
pub const ROOT_NODE: u64 = 1;
/// How long the kernel may believe what it was told under a lock. Any time would do, since it is
/// told when that ends; that it ends at all bounds what a mistake could cost.
const LONG: Duration = Duration::from_secs(3600);

/// The file that a node id names.
pub fn fid(nodeid: u64) -> Fid {
    if nodeid == ROOT_NODE { ROOT } else { Fid::from_ino(nodeid) }
}

/// The node id of a file.
pub fn nodeid(fid: Fid) -> u64 {
    if fid == ROOT { ROOT_NODE } else { fid.ino() }
}

/// The inode numbers that programs see. (The kernel knows files by their node ids.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inos {
    /// Each file's own, of 64 bits.
    Full,
    /// Of 32 bits: two files may have the same.
    Short,
}

impl Inos {
    /// A file's inode number.
    pub fn of(self, fid: Fid) -> u64 {
        match self {
            Inos::Full => fid.ino(),
            Inos::Short => u64::from(short_ino(fid)),
        }
    }
}

/// Lustre's FID_SEQ_START.
const SEQ_START: u64 = 0x2_0000_0000;

/// As Lustre folds a FID (`fid_flatten32`): files of 4096 sequences, 2^20 of each, do not meet if
/// they are made one after the other.
fn short_ino(fid: Fid) -> u32 {
    let (seq, oid) = (fid.seq.wrapping_sub(SEQ_START), u64::from(fid.oid));
    let of_seq = ((seq & 0x000f_ffff) << 12) + ((seq >> 8) & 0xffff_f000) + ((seq >> 32) & 0xffff_ff00);
    let of_oid = (oid & 0xff00_0fff) + ((oid & 0x00ff_f000) << 8);
    match (of_seq + of_oid) as u32 {
        0 => fid.oid,
        ino => ino,
    }
}

/// `stat` for the kernel.
pub fn attr(e: &EntryAttr, inos: Inos) -> FileAttr {
    let a = &e.attr;
    FileAttr {
        ino: inos.of(a.fid),
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

/// How long attributes may be believed. See [`crate::kernel`] for those that bring a file.
pub fn attr_valid(e: &EntryAttr) -> Duration {
    if e.keep.attr { LONG } else { Duration::ZERO }
}

/// An entry for the kernel, whose attributes it may believe for so long. FIDs are never used twice,
/// so the generation is always 0.
pub fn entry(e: &EntryAttr, attr_valid: Duration, inos: Inos) -> EntryOut {
    let entry_valid = if e.keep.name { LONG } else { Duration::ZERO };
    EntryOut { nodeid: nodeid(e.attr.fid), generation: 0, entry_valid, attr_valid, attr: attr(e, inos) }
}

/// Attributes with birth time.
pub fn statx(e: &EntryAttr, inos: Inos) -> Statx {
    Statx { attr: attr(e, inos), btime: Some(e.attr.btime), attributes: 0, attributes_mask: 0 }
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

    #[test]
    fn only_what_can_be_taken_back_is_given_a_time() {
        let t = sheen_wire::Time { sec: 1, nsec: 0 };
        let attr = sheen_wire::Attr {
            fid: Fid::new(sheen_wire::fid::SEQ_NORMAL, 1),
            kind: sheen_wire::FileKind::Regular,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 5,
            blocks: 8,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
            mtime_set: t,
        };
        let mut e = EntryAttr::from(attr);
        assert_eq!((entry(&e, LONG, Inos::Full).entry_valid, attr_valid(&e)), (Duration::ZERO, Duration::ZERO));
        (e.keep.name, e.keep.attr) = (true, true);
        assert_eq!((entry(&e, Duration::ZERO, Inos::Full).entry_valid, attr_valid(&e)), (LONG, LONG));
    }

    #[test]
    fn inode_numbers_of_32_bits_are_lustres() {
        let first = sheen_wire::fid::SEQ_NORMAL;
        assert_eq!(Inos::Short.of(Fid::new(first, 1)), 0x40_0001);
        assert_eq!(Inos::Short.of(Fid::new(first, 0x1_2345)), 0x40_0345 + 0x120_0000);
        assert_eq!(Inos::Short.of(ROOT), 0x7001);
        let all: std::collections::BTreeSet<u64> =
            (0..50).flat_map(|seq| (1..2000).map(move |oid| Inos::Short.of(Fid::new(first + seq, oid)))).collect();
        assert_eq!((all.len(), all.last().is_some_and(|ino| *ino <= u64::from(u32::MAX))), (50 * 1999, true));
        assert_eq!(Inos::Full.of(ROOT), ROOT.ino());
    }
}
