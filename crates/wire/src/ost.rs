//! The object protocol: what a client, or an MDT, asks of an OST.
//!
//! One request carries all that goes to one OST: parts of several objects of one file travel
//! together. An object exists from its first write; until then it reads as empty. Offsets and sizes
//! are those inside the object.

use serde::{Deserialize, Serialize};

use crate::{
    Fid, StatFs, Time,
    ldlm::{Enqueue, Enqueued, LockId},
};

/// Largest size of one object: 16 TiB − 4 KiB, as on Lustre's ldiskfs (reference README, point 12).
pub const OBJECT_SIZE_MAX: u64 = (16 << 40) - 4096;
/// Most parts in one request: a file's largest stripe count (2000) with room for wrapping runs.
pub const PARTS_MAX: usize = 4096;

/// A run of bytes in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Which object.
    pub object: Fid,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// What to look for, as lseek(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte that is a hole (the end of the object counts as one).
    Hole,
}

/// fallocate's modes that Sheen knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Allocate {
    /// Reserve space; `keep_size` does not move the end.
    Reserve {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Give the space back, reading zeros after; never moves the end.
    PunchHole,
    /// Zeros, space reserved.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
}

/// A request to an OST.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named after the system call's")]
pub enum Request {
    /// Reads the parts; the bulk of the reply is their bytes one after another, each cut at its
    /// object's end.
    Read { parts: Vec<Part> },
    /// Writes the request's bulk to the parts, in order; creates objects. `sync`: durable before
    /// the answer. `mtime`: when the program wrote, where the bytes come from a cache. Answered
    /// `LockFirst` where it would have to wait and too many writes wait already.
    Write { parts: Vec<Part>, sync: bool, mtime: Option<Time>, grant: Grant },
    /// Sizes, space and times of objects.
    Attrs { objects: Vec<Fid> },
    /// Locks on objects, with their sizes, space and times as of the grant. Answered when all are
    /// granted or refused, in the order asked; the client's own locks are not in its way. `want`:
    /// space to be promised besides, in bytes.
    Enqueue { locks: Vec<Enqueue>, want: u64 },
    /// The answers to glimpse callbacks ([`crate::ast::Callback::Glimpse`]): what the client knows
    /// of the objects beyond what it has written; `None`: nothing.
    Glimpsed { answers: Vec<(LockId, Option<ObjectAttr>)> },
    /// Gives locks up. Unknown ones are fine.
    Cancel { locks: Vec<LockId> },
    /// Cuts or extends objects to sizes. `create`: an object that does not exist and shall not be
    /// empty is created.
    Truncate { objects: Vec<(Fid, u64)> },
    /// fallocate on runs: (object, offset, length).
    Allocate { mode: Allocate, runs: Vec<(Fid, u64, u64)> },
    /// Next data or hole at or after an offset.
    Seek { object: Fid, offset: u64, what: Seek },
    /// Answers when all that was written to the objects is durable; an empty list means the whole
    /// OST.
    Sync { objects: Vec<Fid> },
    /// Removes objects; answers when they are gone for good. Missing ones are fine.
    Destroy { objects: Vec<Fid> },
    /// Removes all objects of a sequence with `first <= oid <= last`: an MDT that came back removes
    /// what its lost creates left.
    DestroyRange { seq: u64, first: u32, last: u32 },
    /// Space and inodes of the OST.
    StatFs,
    /// Objects that there are, in an order of the OST's own: at most [`PARTS_MAX`], those that
    /// follow this one; [`Fid::ZERO`]: from the first on. None follow the last.
    List { after: Fid },
    /// The data versions of objects; `flush`: when all who keep something unwritten of them have
    /// written it. An object's version is another one after each change of its bytes or size: the
    /// same version means the same bytes; another one means nothing. 0: never written.
    Versions { objects: Vec<Fid>, flush: bool },
    /// Closes objects whose versions are still these (`None`: whichever): nobody reads, writes or
    /// locks them any more (`Errno::MOVED`), also after a restart and after they are destroyed,
    /// until `Reopen`. Whoever keeps anything of them has written and forgotten it before. `group`:
    /// a group whose locks are not in the way, and which nobody writes in meanwhile. EBUSY, and
    /// none is closed: one has another version, or somebody does not give up his locks.
    Close { objects: Vec<(Fid, Option<u64>)>, group: Option<u64> },
    /// Undoes `Close`, for a file that keeps its objects after all. Others are fine.
    Reopen { objects: Vec<Fid> },
    /// Gives each closed object a second name that nobody has used, under which it is an open one,
    /// with all its bytes: (old, new). Answered when bytes and names are durable. One that does not
    /// exist gets none: it reads as empty under either. EBUSY, and perhaps some have theirs: one is
    /// not closed.
    Link { objects: Vec<(Fid, Fid)> },
    /// Where objects are that `Link` gave other names: each itself if it is open, else the last of
    /// its names. For who did something to some of a file's objects before they were closed, and
    /// has to do it to the others. `Errno::MOVED`: one is closed, and has no other name; EAGAIN:
    /// one has, and is being closed there, too.
    Follow { objects: Vec<Fid> },
}

/// Space that an OST has promised to a client (Lustre's grants), in bytes: what the client keeps
/// and has not written never meets a full OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Grant {
    /// So much of it the bytes of this request take: the promise is kept, and is given back.
    pub used: u64,
    /// So much more is wanted.
    pub want: u64,
}

/// Size, space and times of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObjectAttr {
    /// Bytes; 0 where the object does not exist.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// Last write or truncate, by the OST's clock; `None` where the object was never written.
    pub mtime: Option<Time>,
}

/// A successful answer of an OST.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named in the comment")]
pub enum Reply {
    /// To `Destroy`, `DestroyRange`, `Close`, `Reopen` and `Link`: done.
    Ok,
    /// To `Read`: bytes of each part in the bulk, at most what was asked.
    Read(Vec<u32>),
    /// To `Attrs`, in the order asked.
    Attrs(Vec<ObjectAttr>),
    /// To `Enqueue`, in the order asked; `granted`: space promised in addition, in bytes.
    Enqueued { locks: Vec<(Enqueued, ObjectAttr)>, granted: u64 },
    /// To `Write`: nothing is written. It comes again under a lock, for whose waiting no bytes are
    /// held.
    LockFirst,
    /// To `Seek`: the offset, or `None` where there is no more data (for `Hole`: never).
    Offset(Option<u64>),
    /// To `StatFs`.
    StatFs(StatFs),
    /// To `Write`, `Truncate`, `Allocate` and `Sync`: done.
    Done {
        /// Which life of the OST's host it was done in: another number after each boot, the same
        /// for all processes in between. What was changed in one life and not synced may be gone in
        /// another; so if `Sync` answers with another one than a change before it did, that change
        /// may be lost.
        epoch: u64,
        /// Space promised in addition, in bytes.
        granted: u64,
    },
    /// To `List`; to `Follow`, in the order asked.
    Objects(Vec<Fid>),
    /// To `Versions`, in the order asked.
    Versions(Vec<u64>),
}

impl Request {
    /// Name for statistics, after Lustre's `obdfilter.*.stats`.
    pub fn op(&self) -> &'static str {
        use Request::*;
        match self {
            Read { .. } => "read",
            Write { .. } => "write",
            Attrs { .. } => "getattr",
            Enqueue { .. } => "ldlm_enqueue",
            Glimpsed { .. } => "ldlm_glimpse",
            Cancel { .. } => "ldlm_cancel",
            Truncate { .. } => "punch",
            Allocate { .. } => "fallocate",
            Seek { .. } => "seek",
            Sync { .. } => "sync",
            Destroy { .. } => "destroy",
            DestroyRange { .. } => "destroy_range",
            StatFs => "statfs",
            List { .. } => "list",
            Versions { .. } => "data_version",
            Close { .. } => "close",
            Reopen { .. } => "reopen",
            Link { .. } => "link",
            Follow { .. } => "follow",
        }
    }
}
