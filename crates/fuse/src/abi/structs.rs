//! Structures of messages on `/dev/fuse`, named after the kernel's: `fuse_open_in` is [`OpenIn`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! wire_structs {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident : $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $ty),* }
        )*

        #[cfg(test)]
        #[test]
        fn struct_sizes_match_the_kernel() {
            $(assert_eq!(size_of::<$name>(), $size, stringify!($name));)*
        }
    };
}

wire_structs! {
    /// Header of every request. `total_extlen` is the size of the extensions at the end, in units
    /// of 8 bytes.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Header of every reply (`error` ≤ 0) and notification (`unique` 0, `error` is the
    /// notification code).
    OutHeader = 16 { len: u32, error: i32, unique: u64 }
    /// `fuse_attr`.
    Attr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// `fuse_sx_time`.
    StatxTime = 16 { sec: i64, nsec: u32, reserved: i32 }
    /// `fuse_statx`, the same as `struct statx`.
    Statx = 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64, size: u64,
        blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    StatxOut = 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    /// `fuse_kstatfs`, alone in `fuse_statfs_out`.
    StatFsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32, padding: u32,
        spare: [u32; 6],
    }
    FileLock = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    GetAttrIn = 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    SetAttrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    OpenIn = 8 { flags: u32, open_flags: u32 }
    /// Arguments of CREATE and TMPFILE.
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn = 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn = 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteOut = 8 { size: u32, padding: u32 }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// Form of [`SetXattrIn`] without SETXATTR_EXT.
    SetXattrCompatIn = 8 { size: u32, flags: u32 }
    SetXattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetXattrIn = 8 { size: u32, padding: u32 }
    GetXattrOut = 8 { size: u32, padding: u32 }
    LkIn = 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn = 8 { mask: u32, padding: u32 }
    /// The part of `fuse_init_in` that every kernel sends.
    InitIn = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// Second part of `fuse_init_in`, sent with INIT_EXT.
    InitInExt = 48 { flags2: u32, unused: [u32; 11] }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16, max_write: u32,
        time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    InterruptIn = 8 { unique: u64 }
    BmapIn = 16 { block: u64, blocksize: u32, padding: u32 }
    BmapOut = 8 { block: u64 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    PollIn = 24 { fh: u64, kh: u64, flags: u32, events: u32 }
    PollOut = 8 { revents: u32, padding: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut = 8 { offset: u64 }
    CopyFileRangeIn = 56 { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    /// Reply to COPY_FILE_RANGE_64. The reply to COPY_FILE_RANGE is [`WriteOut`].
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    /// Header of each name in READDIR's reply. The record is padded to a multiple of 8 bytes.
    Dirent = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    SyncFsIn = 8 { padding: u64 }
    /// Header of each extension.
    ExtHeader = 8 { size: u32, kind: u32 }
    NotifyPollOut = 8 { kh: u64 }
    NotifyInvalInodeOut = 24 { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut = 16 { parent: u64, namelen: u32, flags: u32 }
    NotifyDeleteOut = 24 { parent: u64, child: u64, namelen: u32, padding: u32 }
    NotifyStoreOut = 24 { nodeid: u64, offset: u64, size: u32, padding: u32 }
    NotifyRetrieveOut = 32 { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// Arguments of NOTIFY_REPLY. As long as [`WriteIn`], so its data has the same offset as that
    /// of a WRITE.
    NotifyRetrieveIn = 40 { dummy1: u64, offset: u64, size: u32, dummy2: u32, dummy3: u64, dummy4: u64 }
    NotifyPruneOut = 16 { count: u32, padding: u32, spare: u64 }
    /// `fuse_uring_ent_in_out`: what kernel and file system tell each other about a ring entry.
    RingEntry = 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// `fuse_uring_req_header`: the first of the two buffers of a ring entry. `in_out` starts with
    /// the header of the request or of the reply, `op_in` with the operation's first argument.
    RingHeader = 288 { in_out: RingWords, op_in: RingWords, entry: RingEntry }
    /// A part of [`RingHeader`].
    RingWords = 128 { words: [u64; 16] }
    /// `fuse_uring_cmd_req`: arguments of a command to the kernel, in the submission queue entry.
    RingCommand = 24 { flags: u64, commit_id: u64, qid: u16, padding: [u16; 3] }
    /// `struct iovec`.
    IoVec = 16 { base: u64, len: u64 }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Checks the offsets that matter most. Sizes alone would not reveal two swapped fields of the
    /// same width.
    #[test]
    fn struct_field_offsets_match_the_kernel() {
        assert_eq!(
            [offset_of!(InHeader, unique), offset_of!(InHeader, uid), offset_of!(InHeader, total_extlen)],
            [8, 24, 36]
        );
        assert_eq!([offset_of!(Attr, atimensec), offset_of!(Attr, mode), offset_of!(Attr, rdev)], [48, 60, 76]);
        assert_eq!([offset_of!(SetAttrIn, mode), offset_of!(SetAttrIn, uid), offset_of!(SetAttrIn, gid)], [68, 76, 80]);
        assert_eq!(
            [offset_of!(InitOut, max_write), offset_of!(InitOut, max_pages), offset_of!(InitOut, flags2)],
            [20, 28, 32]
        );
        assert_eq!(
            [offset_of!(Statx, ino), offset_of!(Statx, atime), offset_of!(Statx, rdev_major)],
            [0x20, 0x40, 0x80]
        );
        assert_eq!(offset_of!(EntryOut, attr), 40);
        assert_eq!(offset_of!(StatFsOut, bsize), 40);
        assert_eq!([offset_of!(RingHeader, op_in), offset_of!(RingHeader, entry)], [128, 256]);
        assert_eq!([offset_of!(RingEntry, commit_id), offset_of!(RingEntry, payload_sz)], [8, 16]);
        assert_eq!([offset_of!(RingCommand, commit_id), offset_of!(RingCommand, qid)], [8, 16]);
        assert_eq!([offset_of!(LkIn, lk), offset_of!(LkIn, lk_flags)], [16, 40]);
    }
}
