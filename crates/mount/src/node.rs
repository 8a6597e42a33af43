//! Node ids of the kernel, FIDs, and attributes in the kernel's form.

use std::time::Duration;

use sheen_client::EntryAttr;
use sheen_fuse::{EntryOut, FileAttr, Statx};
use sheen_wire::Fid;

/// The kernel's node id of the root directory.
pub const ROOT_NODE: u64 = 1;
/// How long the kernel may cache names and attributes that a lock guards. The client invalidates
/// them before it cancels the lock, so any time would be correct. The limit bounds the damage of a
/// bug.
const LONG: Duration = Duration::from_secs(3600);

/// Returns the file with this node id. `root`: the directory that is mounted.
pub fn fid(nodeid: u64, root: Fid) -> Fid {
    if nodeid == ROOT_NODE { root } else { Fid::from_ino(nodeid) }
}

/// Returns the node id of a file. `root`: the directory that is mounted.
pub fn nodeid(fid: Fid, root: Fid) -> u64 {
    if fid == root { ROOT_NODE } else { fid.ino() }
}

/// The inode numbers that programs see. (The kernel knows files by their node ids.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inos {
    /// The file's own number, 64 bits.
    Full,
    /// 32 bits: two files may have the same number.
    Short,
}

impl Inos {
    /// Returns a file's inode number.
    pub fn of(self, fid: Fid) -> u64 {
        match self {
            Inos::Full => fid.ino(),
            Inos::Short => u64::from(short_ino(fid)),
        }
    }
}

/// Lustre's FID_SEQ_START.
const SEQ_START: u64 = 0x2_0000_0000;

/// Folds a FID into 32 bits as Lustre does (`fid_flatten32`). Files of 4096 consecutive sequences,
/// 2^20 of each, do not collide.
fn short_ino(fid: Fid) -> u32 {
    let (seq, oid) = (fid.seq.wrapping_sub(SEQ_START), u64::from(fid.oid));
    let of_seq = ((seq & 0x000f_ffff) << 12) + ((seq >> 8) & 0xffff_f000) + ((seq >> 32) & 0xffff_ff00);
    let of_oid = (oid & 0xff00_0fff) + ((oid & 0x00ff_f000) << 8);
    match (of_seq + of_oid) as u32 {
        0 => fid.oid,
        ino => ino,
    }
}

/// Converts attributes for `stat`.
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

/// Returns how long attributes are valid. For replies that bring a file, see [`crate::kernel`].
pub fn attr_valid(e: &EntryAttr) -> Duration {
    if e.keep.attr { LONG } else { Duration::ZERO }
}

/// Builds an entry for the kernel under this node id, with attributes that are valid for
/// `attr_valid`. FIDs are never
/// reused, so the generation is always 0.
pub fn entry(e: &EntryAttr, attr_valid: Duration, nodeid: u64, inos: Inos) -> EntryOut {
    let entry_valid = if e.keep.name { LONG } else { Duration::ZERO };
    EntryOut { nodeid, generation: 0, entry_valid, attr_valid, attr: attr(e, inos) }
}

/// Converts attributes for statx(2), with the birth time.
pub fn statx(e: &EntryAttr, inos: Inos) -> Statx {
    Statx { attr: attr(e, inos), btime: Some(e.attr.btime), attributes: 0, attributes_mask: 0 }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{Attr, FileKind, Time, fid::ROOT};

    use super::*;

    #[test]
    fn nodeid_and_fid_convert_both_ways() {
        assert_eq!(fid(ROOT_NODE, ROOT), ROOT);
        let dir = Fid::new(0x2_0000_0777, 5);
        assert_eq!((fid(ROOT_NODE, dir), nodeid(dir, dir)), (dir, ROOT_NODE));
        assert_eq!((nodeid(ROOT, dir), nodeid(dir, ROOT)), (ROOT.ino(), dir.ino()));
        for f in [ROOT, Fid::new(sheen_wire::fid::SEQ_NORMAL, 1), Fid::new(0x2_0000_0777, 0x1ffff)] {
            assert_eq!(fid(nodeid(f, ROOT), ROOT), f);
        }
    }

    #[test]
    fn only_entries_under_locks_get_validity_time() {
        let t = Time { sec: 1, nsec: 0 };
        let fid = Fid::new(sheen_wire::fid::SEQ_NORMAL, 1);
        let attr = Attr { size: 5, blocks: 8, ..Attr::new(fid, FileKind::Regular, 0o644, t) };
        let mut e = EntryAttr::from(attr);
        assert_eq!((entry(&e, LONG, 7, Inos::Full).entry_valid, attr_valid(&e)), (Duration::ZERO, Duration::ZERO));
        (e.keep.name, e.keep.attr) = (true, true);
        assert_eq!((entry(&e, Duration::ZERO, 7, Inos::Full).entry_valid, attr_valid(&e)), (LONG, LONG));
    }

    #[test]
    fn short_inode_numbers_match_lustre() {
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
