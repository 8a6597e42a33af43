//! The lock manager's words: what a lock is on, how it excludes others, how server and client name
//! it.
//!
//! A client asks a target for a lock ([`Enqueue`]); the target answers [`Enqueued`], and calls the
//! client back when a lock that had to wait is granted (completion), when somebody else wants one
//! (blocking), or to learn an object's size (glimpse). The rules live in the crate `sheen-ldlm`.

use serde::{Deserialize, Serialize};

use crate::{Errno, Fid};

/// How strongly a lock excludes others; Lustre's modes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Mode {
    /// Exclusive: nobody else may do anything.
    Ex,
    /// Protected write: one writer; others may at most hold CR.
    Pw,
    /// Protected read: many readers, no writer.
    Pr,
    /// Concurrent write: many that write, without protection from each other.
    Cw,
    /// Concurrent read: reads whatever there is; excluded only by EX and GROUP.
    Cr,
    /// Null: excludes nobody. Asked for in a flock resource it means unlock.
    Nl,
    /// Shared by those that name the same group id, and nobody else.
    Group,
}

/// Number of modes.
pub const MODES: usize = 7;

/// `COMPATIBLE[a] >> b & 1`: Lustre's matrix, in the order of [`Mode`].
const COMPATIBLE: [u8; MODES] = {
    const EX: u8 = 1 << Mode::Nl as u8;
    const PW: u8 = EX | 1 << Mode::Cr as u8;
    const PR: u8 = PW | 1 << Mode::Pr as u8;
    const CW: u8 = PW | 1 << Mode::Cw as u8;
    const CR: u8 = CW | PR | 1 << Mode::Pw as u8;
    const NL: u8 = CR | 1 << Mode::Ex as u8 | GROUP;
    const GROUP: u8 = EX | 1 << Mode::Group as u8;
    [EX, PW, PR, CW, CR, NL, GROUP]
};

impl Mode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Mode; MODES] = [Mode::Ex, Mode::Pw, Mode::Pr, Mode::Cw, Mode::Cr, Mode::Nl, Mode::Group];

    /// Whether two locks on the same thing may be granted in these modes at once. Two GROUP locks
    /// also need the same group id.
    pub const fn compatible(a: Mode, b: Mode) -> bool {
        COMPATIBLE[a as usize] >> b as u8 & 1 == 1
    }

    /// Whether who holds `self` may do what `want` permits: it excludes at least as much. GROUP
    /// covers, and is covered by, only GROUP, for it is asked for and given up explicitly.
    pub const fn covers(self, want: Mode) -> bool {
        let group = matches!(self, Mode::Group) == matches!(want, Mode::Group);
        group && COMPATIBLE[self as usize] & !COMPATIBLE[want as usize] == 0
    }

    /// Whether the mode permits changing what it locks.
    pub const fn writes(self) -> bool {
        matches!(self, Mode::Ex | Mode::Pw | Mode::Cw | Mode::Group)
    }
}

/// What kind of locks a resource has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Byte ranges of an object's data.
    Extent,
    /// Parts of an inode, as a set of bits ([`bits`]).
    Bits,
    /// Locks of programs: fcntl(2) and flock(2).
    Flock,
}

/// What is locked: one kind of a file or object of the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// The file or object.
    pub fid: Fid,
    /// Which of its locks.
    pub kind: Kind,
}

impl Resource {
    /// An object's data.
    pub const fn extent(fid: Fid) -> Resource {
        Resource { fid, kind: Kind::Extent }
    }

    /// An inode's parts.
    pub const fn bits(fid: Fid) -> Resource {
        Resource { fid, kind: Kind::Bits }
    }

    /// A file's fcntl and flock locks.
    pub const fn flock(fid: Fid) -> Resource {
        Resource { fid, kind: Kind::Flock }
    }
}

/// The parts of an inode; Lustre's MDS_INODELOCK_*.
#[allow(missing_docs, reason = "Lustre's names; the comment beside each says what it guards")]
pub mod bits {
    pub const LOOKUP: u64 = 0x01; // the name, and for a directory its permissions on the way to others
    pub const UPDATE: u64 = 0x02; // size, times, link count; a directory's entries
    pub const OPEN: u64 = 0x04; // an open handle
    pub const LAYOUT: u64 = 0x08; // where the data is
    pub const PERM: u64 = 0x10; // owner, mode, ACL
    pub const XATTR: u64 = 0x20; // extended attributes
    pub const DOM: u64 = 0x40; // data on the MDT
    /// All of them.
    pub const ALL: u64 = 0x7f;
}

/// Which of a resource's users a flock lock is for. Those of fcntl(2) and flock(2) do not see each
/// other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum FlockKind {
    /// fcntl(2): byte ranges, split and merged per owner.
    Posix,
    /// flock(2): the whole file, one lock an owner.
    Flock,
}

/// A lock of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` is the end of all files.
    pub end: u64,
    /// Who holds it, unique within the client: the kernel's lock owner.
    pub owner: u64,
    /// Process id to show with F_GETLK.
    pub pid: u32,
    /// fcntl or flock.
    pub kind: FlockKind,
}

/// What of the resource is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Policy {
    /// For [`Kind::Extent`].
    Extent {
        /// First byte.
        start: u64,
        /// Last byte, inclusive; `u64::MAX` is the end of all objects.
        end: u64,
        /// Group id of a GROUP lock, 0 else.
        gid: u64,
    },
    /// For [`Kind::Bits`].
    Bits {
        /// Parts that the lock must have.
        bits: u64,
        /// Parts that it gets as well if nobody is in the way.
        try_bits: u64,
    },
    /// For [`Kind::Flock`].
    Flock(Flock),
}

impl Policy {
    /// Bytes `start..=end`.
    pub const fn extent(start: u64, end: u64) -> Policy {
        Policy::Extent { start, end, gid: 0 }
    }

    /// The whole object for the group `gid`.
    pub const fn group(gid: u64) -> Policy {
        Policy::Extent { start: 0, end: u64::MAX, gid }
    }

    /// Parts of an inode, all of them needed.
    pub const fn bits(bits: u64) -> Policy {
        Policy::Bits { bits, try_bits: 0 }
    }

    /// The byte range of an extent or flock; that of bits is empty of meaning: (0, `u64::MAX`).
    pub const fn range(&self) -> (u64, u64) {
        match self {
            Policy::Extent { start, end, .. } => (*start, *end),
            Policy::Bits { .. } => (0, u64::MAX),
            Policy::Flock(f) => (f.start, f.end),
        }
    }

    /// Whether both touch a common byte or bit. Those of different kinds never do; fcntl's and
    /// flock's neither.
    pub fn overlaps(&self, other: &Policy) -> bool {
        match (self, other) {
            (Policy::Extent { start: a, end: b, .. }, Policy::Extent { start: c, end: d, .. }) => a <= d && c <= b,
            (Policy::Bits { bits: a, .. }, Policy::Bits { bits: b, .. }) => a & b != 0,
            (Policy::Flock(a), Policy::Flock(b)) => a.kind == b.kind && a.start <= b.end && b.start <= a.end,
            _ => false,
        }
    }

    /// Whether a lock on `self` is one on all of `want` (the bits that it only tries for do not
    /// count).
    pub fn contains(&self, want: &Policy) -> bool {
        match (self, want) {
            (Policy::Extent { start, end, gid }, Policy::Extent { start: s, end: e, gid: g }) => {
                start <= s && e <= end && gid == g
            }
            (Policy::Bits { bits: have, .. }, Policy::Bits { bits: want, .. }) => want & !have == 0,
            (Policy::Flock(a), Policy::Flock(b)) => {
                a.kind == b.kind && a.owner == b.owner && a.start <= b.start && b.end <= a.end
            }
            _ => false,
        }
    }
}

/// Whether two locks of one resource exclude each other. The owners of flock locks are not looked
/// at: that two of one owner do not, only the server can tell, which knows their clients.
pub fn conflict(a: Mode, a_policy: &Policy, b: Mode, b_policy: &Policy) -> bool {
    if !a_policy.overlaps(b_policy) {
        return false;
    }
    match (a, a_policy, b, b_policy) {
        (Mode::Group, Policy::Extent { gid: a, .. }, Mode::Group, Policy::Extent { gid: b, .. }) => a != b,
        _ => !Mode::compatible(a, b),
    }
}

/// The server's handle of a lock. Never used twice within the life of a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct LockId(pub u64);

impl LockId {
    /// No lock: the answer to a test, or to an unlock.
    pub const NONE: LockId = LockId(0);
}

/// The client's handle of a lock. Never used twice within the life of a client's connection to a
/// target; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Cookie(pub u64);

impl Cookie {
    /// No handle: such a request is not recognised when it is sent again.
    pub const NONE: Cookie = Cookie(0);
}

/// How a request wants to be treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Flags {
    /// Grant exactly what was asked, nothing around it.
    pub no_expand: bool,
    /// Do not wait, and ask nobody for the lock back. With `no_expand`: Lustre's lockahead.
    pub nowait: bool,
    /// With `nowait`: ask for what is in the way all the same, for the next time.
    pub ask: bool,
    /// Only tell whether it would be granted.
    pub test: bool,
    /// The client can write without a lock if the object is contended.
    pub lockless: bool,
}

/// A request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enqueue {
    /// On what.
    pub resource: Resource,
    /// How strong.
    pub mode: Mode,
    /// Which part.
    pub policy: Policy,
    /// The client's handle.
    pub cookie: Cookie,
    /// How to treat it.
    pub flags: Flags,
    /// A grown extent begins and ends at multiples of this many bytes, a power of two; 0: as the
    /// request is aligned.
    pub align: u64,
}

impl Enqueue {
    /// A plain request.
    pub fn new(resource: Resource, mode: Mode, policy: Policy, cookie: Cookie) -> Enqueue {
        Enqueue { resource, mode, policy, cookie, flags: Flags::default(), align: 0 }
    }
}

/// The lock that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// Whose it is: an export's number.
    pub client: u64,
    /// Which.
    pub id: LockId,
    /// Its mode.
    pub mode: Mode,
    /// Its part.
    pub policy: Policy,
}

/// The answer to [`Enqueue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Enqueued {
    /// The client holds it; `policy` may be more than it asked for. [`LockId::NONE`] after a test
    /// or an unlock.
    Granted {
        /// The lock.
        id: LockId,
        /// Its mode.
        mode: Mode,
        /// Its part.
        policy: Policy,
    },
    /// It waits for others; a completion callback will follow.
    Waiting {
        /// The request, for cancelling it.
        id: LockId,
    },
    /// It may not wait, and somebody is in the way.
    WouldBlock {
        /// Who.
        by: Conflict,
    },
    /// Waiting for it would never end (EDEADLK).
    Deadlock,
    /// The object is contended: write without a lock, the server orders the writes.
    Contended,
    /// No lock: ENOLCK where there are too many, EINVAL where the request makes no sense.
    Refused(Errno),
}

/// How to weaken a lock in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Convert {
    /// To a mode that excludes less.
    Mode(Mode),
    /// To these bits of the present ones (at least one).
    Bits(u64),
    /// To a range inside of the present one.
    Extent {
        /// First byte.
        start: u64,
        /// Last byte, inclusive.
        end: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_exclude_each_other_as_in_lustre() {
        // Rows and columns in the order of Mode: EX PW PR CW CR NL GROUP.
        let matrix = ["0000010", "0000110", "0010110", "0001110", "0111110", "1111111", "0000011"];
        for (a, row) in Mode::ALL.iter().zip(matrix) {
            for (b, cell) in Mode::ALL.iter().zip(row.chars()) {
                assert_eq!(Mode::compatible(*a, *b), cell == '1', "{a:?} with {b:?}");
                assert_eq!(Mode::compatible(*a, *b), Mode::compatible(*b, *a), "{a:?} with {b:?}");
            }
        }
    }

    #[test]
    fn stronger_modes_cover_weaker_ones() {
        assert!(Mode::Ex.covers(Mode::Pw) && Mode::Pw.covers(Mode::Pr) && Mode::Pr.covers(Mode::Cr));
        assert!(Mode::Pw.covers(Mode::Cw) && !Mode::Pr.covers(Mode::Cw) && !Mode::Cw.covers(Mode::Pr));
        assert!(!Mode::Group.covers(Mode::Pr) && !Mode::Ex.covers(Mode::Group) && Mode::Group.covers(Mode::Group));
    }

    #[test]
    fn groups_exclude_other_groups() {
        let (a, b) = (Policy::group(1), Policy::group(2));
        assert!(conflict(Mode::Group, &a, Mode::Group, &b));
        assert!(!conflict(Mode::Group, &a, Mode::Group, &a));
        assert!(conflict(Mode::Group, &a, Mode::Pr, &Policy::extent(5, 5)));
    }

    #[test]
    fn ranges_are_inclusive() {
        let (a, b) = (Policy::extent(0, 4095), Policy::extent(4096, u64::MAX));
        assert!(!a.overlaps(&b) && a.overlaps(&Policy::extent(4095, 4096)));
        assert!(b.contains(&Policy::extent(4096, 5000)) && !b.contains(&a));
        assert!(!Policy::bits(bits::LOOKUP).overlaps(&Policy::bits(bits::UPDATE | bits::OPEN)));
    }
}
