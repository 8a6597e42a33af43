//! Attributes, entries and file system space, as replies carry them.

use std::time::Duration;

use sheen_wire::{FileKind, Time};

use crate::abi::{flags, structs};

/// Attributes of a file as the kernel shows them in stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    /// Inode number shown to programs. It may differ from the node id.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Type.
    pub kind: FileKind,
    /// Permission bits, 0o7777.
    pub perm: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device files, in the kernel's `new_encode_dev` form.
    pub rdev: u32,
    /// Preferred size of an I/O, in bytes (`st_blksize`).
    pub blksize: u32,
}

impl FileAttr {
    pub(crate) fn to_abi(self) -> structs::Attr {
        structs::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.sec as u64,
            mtime: self.mtime.sec as u64,
            ctime: self.ctime.sec as u64,
            atimensec: self.atime.nsec,
            mtimensec: self.mtime.nsec,
            ctimensec: self.ctime.nsec,
            mode: self.mode(),
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }

    fn mode(self) -> u32 {
        self.kind.mode_bits() | (self.perm & 0o7777)
    }
}

/// Reply to LOOKUP and to every operation that creates a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryOut {
    /// Node id of the file in later requests. 1 is the root. 0 means that the name does not exist
    /// (see [`crate::Reply::negative`]).
    pub nodeid: u64,
    /// Generation of the node id. The pair of both is unique for the life of the file system.
    /// It matters only if node ids are reused.
    pub generation: u64,
    /// How long the kernel may use the name without a LOOKUP.
    pub entry_valid: Duration,
    /// How long the kernel may use the attributes without a GETATTR.
    pub attr_valid: Duration,
    /// Attributes.
    pub attr: FileAttr,
}

impl EntryOut {
    pub(crate) fn to_abi(self) -> structs::EntryOut {
        structs::EntryOut {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.entry_valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: self.attr.to_abi(),
        }
    }

    /// Returns a negative entry, which the kernel may cache for `valid`.
    pub(crate) fn negative(valid: Duration) -> structs::EntryOut {
        structs::EntryOut { entry_valid: valid.as_secs(), entry_valid_nsec: valid.subsec_nanos(), ..Default::default() }
    }
}

/// Reply to STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statx {
    /// Attributes that stat(2) shows.
    pub attr: FileAttr,
    /// Birth time, if known.
    pub btime: Option<Time>,
    /// `STATX_ATTR_*` bits.
    pub attributes: u64,
    /// Mask of the bits of `attributes` that are supported.
    pub attributes_mask: u64,
}

impl Statx {
    pub(crate) fn to_abi(self, valid: Duration) -> structs::StatxOut {
        let time = |t: Time| structs::StatxTime { sec: t.sec, nsec: t.nsec, reserved: 0 };
        let a = self.attr;
        structs::StatxOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            stat: structs::Statx {
                mask: flags::statx::BASIC_STATS | if self.btime.is_some() { flags::statx::BTIME } else { 0 },
                blksize: a.blksize,
                attributes: self.attributes,
                nlink: a.nlink,
                uid: a.uid,
                gid: a.gid,
                mode: a.mode() as u16,
                ino: a.ino,
                size: a.size,
                blocks: a.blocks,
                attributes_mask: self.attributes_mask,
                atime: time(a.atime),
                btime: time(self.btime.unwrap_or_default()),
                ctime: time(a.ctime),
                mtime: time(a.mtime),
                rdev_major: (a.rdev >> 8) & 0xfff,
                rdev_minor: (a.rdev & 0xff) | ((a.rdev >> 12) & 0xfff00),
                ..Default::default()
            },
            ..Default::default()
        }
    }
}

/// Reply to STATFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatFs {
    /// Blocks in total, of `frsize` bytes.
    pub blocks: u64,
    /// Blocks free.
    pub bfree: u64,
    /// Blocks free for ordinary users.
    pub bavail: u64,
    /// Inodes in total.
    pub files: u64,
    /// Inodes free.
    pub ffree: u64,
    /// Preferred size of an I/O, in bytes.
    pub bsize: u32,
    /// Longest name, in bytes.
    pub namelen: u32,
    /// Bytes in a block.
    pub frsize: u32,
}

impl StatFs {
    pub(crate) fn to_abi(self) -> structs::StatFsOut {
        structs::StatFsOut {
            blocks: self.blocks,
            bfree: self.bfree,
            bavail: self.bavail,
            files: self.files,
            ffree: self.ffree,
            bsize: self.bsize,
            namelen: self.namelen,
            frsize: self.frsize,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> FileAttr {
        let t = |sec, nsec| Time { sec, nsec };
        FileAttr {
            ino: 7,
            size: 1 << 40,
            blocks: 9,
            atime: t(-1, 1),
            mtime: t(2, 2),
            ctime: t(3, 3),
            kind: FileKind::Char,
            perm: 0o4755,
            nlink: 2,
            uid: 3,
            gid: 4,
            rdev: 0x1234_5678,
            blksize: 4096,
        }
    }

    #[test]
    fn attr_encodes_times_before_1970_and_file_type() {
        let out = attr().to_abi();
        assert_eq!((out.atime, out.atimensec), (u64::MAX, 1));
        assert_eq!(out.mode, 0o024755);
    }

    #[test]
    fn statx_splits_the_device_number() {
        let sx = Statx { attr: attr(), btime: None, attributes: 0, attributes_mask: 0 };
        let out = sx.to_abi(Duration::from_millis(1500));
        // new_encode_dev: minor's low 8 bits, 12 bits of major, minor's high 12 bits.
        assert_eq!((out.stat.rdev_major, out.stat.rdev_minor), (0x456, 0x12378));
        assert_eq!((out.attr_valid, out.attr_valid_nsec), (1, 500_000_000));
        assert_eq!(out.stat.mask, 0x7ff);
        let with = Statx { btime: Some(Time { sec: 5, nsec: 6 }), ..sx }.to_abi(Duration::ZERO);
        assert_eq!((with.stat.mask, with.stat.btime.sec, with.stat.btime.nsec), (0xfff, 5, 6));
    }
}
