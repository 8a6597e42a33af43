//! Terms of the lock manager: locked resources, conflicts, and handles of locks on server and
//! client.
//!
//! A client requests a lock from a target ([`Enqueue`]); the target replies with [`Enqueued`]. The
//! target sends a callback when a lock that had to wait is granted (completion), or when another
//! client wants the lock (blocking). It also sends one to learn an object's size (glimpse). The
//! rules are in the crate `sheen-ldlm`.

use serde::{Deserialize, Serialize};

use crate::{Errno, Fid};

/// Lock modes, as in Lustre: how strongly a lock excludes others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Mode {
    /// Exclusive: excludes every other lock.
    Ex,
    /// Protected write: one writer; others may at most hold CR.
    Pw,
    /// Protected read: many readers, no writer.
    Pr,
    /// Concurrent write: many writers, without protection from each other.
    Cw,
    /// Concurrent read: reads whatever there is; conflicts only with EX and GROUP.
    Cr,
    /// Null: conflicts with no lock. Requested in a flock resource, it means unlock.
    Nl,
    /// Shared by locks with the same group id; conflicts with all others.
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

    /// Returns its name in texts for administrators, as in Lustre.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Ex => "EX",
            Mode::Pw => "PW",
            Mode::Pr => "PR",
            Mode::Cw => "CW",
            Mode::Cr => "CR",
            Mode::Nl => "NL",
            Mode::Group => "GROUP",
        }
    }

    /// Whether two locks on the same thing may be granted in these modes at once. Two GROUP locks
    /// also need the same group id.
    pub const fn compatible(a: Mode, b: Mode) -> bool {
        COMPATIBLE[a as usize] >> b as u8 & 1 == 1
    }

    /// Whether the holder of `self` may do what `want` permits: `self` excludes at least as much.
    /// GROUP covers only GROUP, and is covered only by GROUP, because it is requested and released
    /// explicitly.
    pub const fn covers(self, want: Mode) -> bool {
        let group = matches!(self, Mode::Group) == matches!(want, Mode::Group);
        group && COMPATIBLE[self as usize] & !COMPATIBLE[want as usize] == 0
    }

    /// Whether the mode permits changing the locked resource.
    pub const fn writes(self) -> bool {
        matches!(self, Mode::Ex | Mode::Pw | Mode::Cw | Mode::Group)
    }
}

/// Kind of the locks of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Byte ranges of an object's data.
    Extent,
    /// Parts of an inode, as a set of bits ([`bits`]).
    Bits,
    /// Locks of programs: fcntl(2) and flock(2).
    Flock,
}

/// A locked resource: one kind of locks of a file or object of the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// The file or object.
    pub fid: Fid,
    /// Kind of its locks.
    pub kind: Kind,
}

impl Resource {
    /// Returns the resource for an object's data.
    pub const fn extent(fid: Fid) -> Resource {
        Resource { fid, kind: Kind::Extent }
    }

    /// Returns the resource for an inode's parts.
    pub const fn bits(fid: Fid) -> Resource {
        Resource { fid, kind: Kind::Bits }
    }

    /// Returns the resource for a file's fcntl and flock locks.
    pub const fn flock(fid: Fid) -> Resource {
        Resource { fid, kind: Kind::Flock }
    }
}

/// The parts of an inode; Lustre's MDS_INODELOCK_*.
#[allow(missing_docs, reason = "Lustre's names; the comment beside each says what it guards")]
pub mod bits {
    pub const LOOKUP: u64 = 0x01; // the name; for a directory also its permissions, which guard its entries
    pub const UPDATE: u64 = 0x02; // size, times, link count; a directory's entries
    pub const OPEN: u64 = 0x04; // an open handle
    pub const LAYOUT: u64 = 0x08; // the layout
    pub const PERM: u64 = 0x10; // owner, mode, ACL
    pub const XATTR: u64 = 0x20; // extended attributes
    pub const DOM: u64 = 0x40; // data on the MDT
    /// All of them.
    pub const ALL: u64 = 0x7f;
}

/// Kind of a flock lock. Locks of fcntl(2) and of flock(2) do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum FlockKind {
    /// fcntl(2): byte ranges, split and merged per owner.
    Posix,
    /// flock(2): the whole file, one lock per owner.
    Flock,
}

/// A lock of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` is the end of all files.
    pub end: u64,
    /// Owner, unique within the client: the kernel's lock owner.
    pub owner: u64,
    /// Process id to show with F_GETLK.
    pub pid: u32,
    /// fcntl or flock.
    pub kind: FlockKind,
}

/// Locked part of a resource.
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
        /// Parts that it also gets if no other lock conflicts.
        try_bits: u64,
    },
    /// For [`Kind::Flock`].
    Flock(Flock),
}

impl Policy {
    /// Returns the byte range `start..=end`.
    pub const fn extent(start: u64, end: u64) -> Policy {
        Policy::Extent { start, end, gid: 0 }
    }

    /// Returns the whole object for the group `gid`.
    pub const fn group(gid: u64) -> Policy {
        Policy::Extent { start: 0, end: u64::MAX, gid }
    }

    /// Returns parts of an inode, all of them required.
    pub const fn bits(bits: u64) -> Policy {
        Policy::Bits { bits, try_bits: 0 }
    }

    /// Returns the byte range of an extent or flock. For bits it is (0, `u64::MAX`), which means
    /// nothing.
    pub const fn range(&self) -> (u64, u64) {
        match self {
            Policy::Extent { start, end, .. } => (*start, *end),
            Policy::Bits { .. } => (0, u64::MAX),
            Policy::Flock(f) => (f.start, f.end),
        }
    }

    /// Whether both have a common byte or bit. Policies of different kinds never overlap, nor do
    /// fcntl's and flock's.
    pub fn overlaps(&self, other: &Policy) -> bool {
        match (self, other) {
            (Policy::Extent { start: a, end: b, .. }, Policy::Extent { start: c, end: d, .. }) => a <= d && c <= b,
            (Policy::Bits { bits: a, .. }, Policy::Bits { bits: b, .. }) => a & b != 0,
            (Policy::Flock(a), Policy::Flock(b)) => a.kind == b.kind && a.start <= b.end && b.start <= a.end,
            _ => false,
        }
    }

    /// Whether a lock on `self` covers all of `want`. Optional bits of `want` do not count.
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

/// Whether two locks of one resource conflict. Ignores the owners of flock locks: two locks of one
/// owner do not conflict, but only the server, which knows the clients, can tell.
pub fn conflict(a: Mode, a_policy: &Policy, b: Mode, b_policy: &Policy) -> bool {
    if !a_policy.overlaps(b_policy) {
        return false;
    }
    match (a, a_policy, b, b_policy) {
        (Mode::Group, Policy::Extent { gid: a, .. }, Mode::Group, Policy::Extent { gid: b, .. }) => a != b,
        _ => !Mode::compatible(a, b),
    }
}

/// Server's handle of a lock, never reused in the lifetime of a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct LockId(pub u64);

impl LockId {
    /// No lock: the reply to a test, or to an unlock.
    pub const NONE: LockId = LockId(0);
}

/// Client's handle of a lock, never reused while the client is connected to a target; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Cookie(pub u64);

impl Cookie {
    /// No handle: a resend of such a request is not recognized.
    pub const NONE: Cookie = Cookie(0);
}

/// Options of a lock request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Flags {
    /// Grant exactly the requested range, without expansion.
    pub no_expand: bool,
    /// Do not wait, and send no blocking callbacks. With `no_expand`: Lustre's lockahead.
    pub nowait: bool,
    /// With `nowait`: still send blocking callbacks for conflicting locks, for the next attempt.
    pub ask: bool,
    /// Only report whether it would be granted.
    pub test: bool,
    /// The client can write without a lock if the object is contended.
    pub lockless: bool,
}

/// A request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enqueue {
    /// Resource to be locked.
    pub resource: Resource,
    /// Requested mode.
    pub mode: Mode,
    /// Requested part.
    pub policy: Policy,
    /// The client's handle.
    pub cookie: Cookie,
    /// Options.
    pub flags: Flags,
    /// An expanded extent begins and ends at multiples of this many bytes, a power of two. 0: as
    /// the request is aligned.
    pub align: u64,
}

impl Enqueue {
    /// Returns a request without options.
    pub fn new(resource: Resource, mode: Mode, policy: Policy, cookie: Cookie) -> Enqueue {
        Enqueue { resource, mode, policy, cookie, flags: Flags::default(), align: 0 }
    }
}

/// A conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// Its holder: an export's number.
    pub client: u64,
    /// Its handle.
    pub id: LockId,
    /// Its mode.
    pub mode: Mode,
    /// Its part.
    pub policy: Policy,
}

/// The reply to [`Enqueue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Enqueued {
    /// The client holds the lock; `policy` may be more than it requested. [`LockId::NONE`] after a
    /// test or an unlock.
    Granted {
        /// The lock.
        id: LockId,
        /// Its mode.
        mode: Mode,
        /// Its part.
        policy: Policy,
    },
    /// The request waits for other locks; a completion callback will follow.
    Waiting {
        /// Id of the request, for cancelling it.
        id: LockId,
    },
    /// The request must not wait, and another lock conflicts.
    WouldBlock {
        /// The conflicting lock.
        by: Conflict,
    },
    /// The request would wait forever (EDEADLK).
    Deadlock,
    /// The object is contended: write without a lock; the server orders the writes.
    Contended,
    /// No lock: ENOLCK if there are too many, EINVAL for an invalid request.
    Refused(Errno),
}

/// Ways to weaken a lock in place.
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
    fn lock_modes_conflict_as_in_lustre() {
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
    fn mode_names_are_those_of_the_variants() {
        for mode in Mode::ALL {
            assert_eq!(mode.name(), format!("{mode:?}").to_uppercase());
        }
    }

    #[test]
    fn stronger_modes_cover_weaker_ones() {
        assert!(Mode::Ex.covers(Mode::Pw) && Mode::Pw.covers(Mode::Pr) && Mode::Pr.covers(Mode::Cr));
        assert!(Mode::Pw.covers(Mode::Cw) && !Mode::Pr.covers(Mode::Cw) && !Mode::Cw.covers(Mode::Pr));
        assert!(!Mode::Group.covers(Mode::Pr) && !Mode::Ex.covers(Mode::Group) && Mode::Group.covers(Mode::Group));
    }

    #[test]
    fn group_locks_of_different_groups_conflict() {
        let (a, b) = (Policy::group(1), Policy::group(2));
        assert!(conflict(Mode::Group, &a, Mode::Group, &b));
        assert!(!conflict(Mode::Group, &a, Mode::Group, &a));
        assert!(conflict(Mode::Group, &a, Mode::Pr, &Policy::extent(5, 5)));
    }

    #[test]
    fn extent_ends_are_inclusive() {
        let (a, b) = (Policy::extent(0, 4095), Policy::extent(4096, u64::MAX));
        assert!(!a.overlaps(&b) && a.overlaps(&Policy::extent(4095, 4096)));
        assert!(b.contains(&Policy::extent(4096, 5000)) && !b.contains(&a));
        assert!(!Policy::bits(bits::LOOKUP).overlaps(&Policy::bits(bits::UPDATE | bits::OPEN)));
    }
}
