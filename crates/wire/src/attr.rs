//! Attributes, times and credentials.

use serde::{Deserialize, Serialize};

use crate::Fid;

/// A point in real time, as `struct timespec`: seconds since 1970 (may be negative) and nanoseconds
/// (0..1e9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds, below 1_000_000_000.
    pub nsec: u32,
}

impl Time {
    /// Returns the time that many microseconds ago.
    pub fn micros_ago(self, micros: u64) -> Time {
        let (sec, nsec) = ((micros / 1_000_000) as i64, (micros % 1_000_000 * 1000) as u32);
        match self.nsec.checked_sub(nsec) {
            Some(nsec) => Time { sec: self.sec.saturating_sub(sec), nsec },
            None => Time { sec: self.sec.saturating_sub(sec + 1), nsec: self.nsec + 1_000_000_000 - nsec },
        }
    }

    /// Returns the microseconds since an earlier time ([`Time::micros_ago`]). `None`: `earlier` is
    /// later, or the difference is not in whole microseconds.
    pub fn whole_micros_since(self, earlier: Time) -> Option<u64> {
        let nanos = |time: Time| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
        let since = u128::try_from(nanos(self) - nanos(earlier)).ok()?;
        if since.is_multiple_of(1000) { u64::try_from(since / 1000).ok() } else { None }
    }
}

/// The file type bits of a mode (`S_IFMT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    Char,
    /// Block device.
    Block,
}

impl FileKind {
    /// Returns `S_IFREG` and so on.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => 0o100000,
            FileKind::Dir => 0o040000,
            FileKind::Symlink => 0o120000,
            FileKind::Fifo => 0o010000,
            FileKind::Socket => 0o140000,
            FileKind::Char => 0o020000,
            FileKind::Block => 0o060000,
        }
    }

    /// Returns the kind for a mode's type bits.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170000 {
            0o100000 => FileKind::Regular,
            0o040000 => FileKind::Dir,
            0o120000 => FileKind::Symlink,
            0o010000 => FileKind::Fifo,
            0o140000 => FileKind::Socket,
            0o020000 => FileKind::Char,
            0o060000 => FileKind::Block,
            _ => return None,
        })
    }

    /// Returns `DT_REG` and so on, for readdir.
    pub const fn dt(self) -> u32 {
        self.mode_bits() >> 12
    }
}

/// Attributes that `stat` shows. The MDT fills in all of them. The `size`, `blocks`, and possibly
/// later times of a striped regular file come from its objects; the client merges them
/// ([`crate::ost::ObjectAttr`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// FID of the file.
    pub fid: Fid,
    /// File type.
    pub kind: FileKind,
    /// Permission bits, 0o7777.
    pub perm: u32,
    /// Hard links; 0 for an orphan.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of character and block devices, in the kernel's `new_encode_dev` form.
    pub rdev: u32,
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
    /// Creation.
    pub btime: Time,
    /// When `mtime` was last set at the MDT (by creation, truncate or utimensat), by the MDT's
    /// clock. Bytes written to the objects later are newer than `mtime`. Unlike `ctime`, this time
    /// does not change with names and other attributes.
    pub mtime_set: Time,
}

impl Attr {
    /// Returns the attributes of an empty file of the superuser with one name. Its times are `now`.
    pub fn new(fid: Fid, kind: FileKind, perm: u32, now: Time) -> Attr {
        Attr {
            fid,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            mtime_set: now,
        }
    }
}

/// User who makes a request. Taken from the kernel's request; the MDT checks permissions with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cred {
    /// File system user id.
    pub uid: u32,
    /// File system group id.
    pub gid: u32,
    /// Supplementary groups. `None`: not looked up yet; the MDT returns
    /// [`crate::Errno::NEED_GROUPS`] if they matter.
    pub groups: Option<Vec<u32>>,
}

impl Cred {
    /// The superuser, also used for the system's own work.
    pub const ROOT: Cred = Cred { uid: 0, gid: 0, groups: Some(Vec::new()) };
}

/// Space and inodes of one target, or of a whole file system. Units: `bsize` bytes, inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StatFs {
    /// Bytes in a block.
    pub bsize: u32,
    /// Blocks in total.
    pub blocks: u64,
    /// Blocks free.
    pub bfree: u64,
    /// Blocks free for ordinary users.
    pub bavail: u64,
    /// Inodes in total.
    pub files: u64,
    /// Inodes free.
    pub ffree: u64,
    /// Problems of a target, as Lustre's `os_state`: bits such as [`STATE_DEGRADED`].
    pub state: u32,
}

/// In [`StatFs::state`]: the target's disks are being repaired, so it is slow. New objects go to
/// other targets if they can. (`OS_STATFS_DEGRADED`.)
pub const STATE_DEGRADED: u32 = 1;
