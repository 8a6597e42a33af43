//! The object protocol: requests of clients and MDTs to an OST.
//!
//! One request carries everything that goes to one OST: parts of several objects of one file travel
//! together. An object exists from its first write on; before, it reads as empty. Offsets and sizes
//! are those inside the object.

use serde::{Deserialize, Serialize};

use crate::{
    Fid, Result, StatFs, Time,
    auth::Proof,
    ldlm::{Enqueue, Enqueued, LockId},
    quota,
};

/// Largest size of one object, in bytes: 16 TiB − 4 KiB, as on Lustre's ldiskfs (reference README,
/// point 12).
pub const OBJECT_SIZE_MAX: u64 = (16 << 40) - 4096;
/// Maximum parts in one request: a file's largest stripe count (2000) with room for wrapping runs.
pub const PARTS_MAX: usize = 4096;
/// Maximum changes in one [`Request::Replay`].
pub const REPLAYS_MAX: usize = 1024;
/// Maximum objects of one `SetOwners`, and of one `QuotaNeeds`.
pub const OWNERS_MAX: usize = 4096;
/// Maximum damaged blocks of one `QuotaNeeds`.
pub const DAMAGED_MAX: usize = 256;
/// Maximum ids of one answer to `QuotaUse`.
pub const USES_MAX: usize = 4096;

/// A run of bytes in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// FID of the object.
    pub object: Fid,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A block of an object that differs from the checksum stored with the object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DamagedBlock {
    /// Offset of the block in the object.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// The checksum (CRC-32C) that it should have.
    pub sum: u32,
}

impl DamagedBlock {
    /// The whole object is lost: it was durable once, and its file is missing.
    pub const WHOLE: DamagedBlock = DamagedBlock { offset: 0, len: 0, sum: 0 };

    /// Whether the whole object is lost. Other blocks have at least one byte.
    pub fn is_whole(&self) -> bool {
        *self == DamagedBlock::WHOLE
    }
}

/// Damage of an object, which the MDT is to repair from another mirror of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Damaged {
    /// The object.
    pub object: Fid,
    /// Its file, as far as the OST knows. [`Fid::ZERO`]: unknown.
    pub file: Fid,
    /// The block, or [`DamagedBlock::WHOLE`].
    pub block: DamagedBlock,
}

/// A step in which the MDT makes a lost object again ([`Request::Recreate`]). `copy`: a number that
/// the MDT has drawn for this copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Recreate {
    /// The layout of a file has the object. The OST lists it as lost.
    Confirm,
    /// No layout has the object. If it has no file on the OST either, it was removed and is not
    /// lost. ESTALE: it has one, or the OST knows that it belongs to another file.
    Unknown {
        /// Its file, as the OST has reported.
        file: Fid,
    },
    /// Begins a copy of `size` bytes, all of them zeros. Discards the former copy of any object.
    /// Does nothing if this copy has begun. EEXIST: another copy has the number. The copy ends if
    /// the MDT disconnects, or makes no step for long.
    Begin {
        /// Its number.
        copy: u64,
        /// Size of the object in bytes.
        size: u64,
    },
    /// Writes the request's bulk to offset `at` of the copy. EINVAL: it ends before.
    Write {
        /// Its number.
        copy: u64,
        /// Offset in bytes.
        at: u64,
    },
    /// The copy is complete, and becomes the object. Answered when it is durable.
    End {
        /// Its number.
        copy: u64,
        /// Time of the object's last change.
        mtime: Time,
    },
    /// Discards the copy.
    Abort {
        /// Its number.
        copy: u64,
    },
}

/// File and owner of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owned {
    /// The object.
    pub object: Fid,
    /// The file whose layout has it. [`Fid::ZERO`]: unknown; the OST retains the one that it knows.
    pub file: Fid,
    /// Those to whom its space is charged.
    pub owner: quota::Owner,
}

/// The state of an object that a check of the MDT compares with the object's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoredObject {
    /// Size in bytes, without dirty data of clients; 0 if the object does not exist.
    pub size: u64,
    /// Owner in the object's record. `None`: unknown so far.
    pub owner: Option<quota::Owner>,
}

/// Target of a search, as in lseek(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte that is a hole (the end of the object counts as one).
    Hole,
}

/// Modes of fallocate that Sheen supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Allocate {
    /// Reserves space; with `keep_size` the object's end does not move.
    Reserve {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Releases the space, so that it reads as zeros; never moves the end.
    PunchHole,
    /// Writes zeros and reserves the space.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
}

/// A change that a client replays to a restarted OST.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are those of the requests")]
pub enum Change {
    /// Writes the next bytes of the bulk, as many as the parts have.
    Write { file: Fid, parts: Vec<Part>, mtime: Time },
    /// As [`Request::Truncate`].
    Truncate { file: Fid, objects: Vec<(Fid, u64)> },
    /// As [`Request::Allocate`].
    Allocate { file: Fid, mode: Allocate, runs: Vec<(Fid, u64, u64)> },
}

impl Change {
    /// Calls `f` for each object with the right that the change needs.
    pub fn objects(&self, f: &mut impl FnMut(Fid, u8)) {
        match self {
            Change::Write { parts, .. } => parts.iter().for_each(|part| f(part.object, rights::WRITE)),
            Change::Truncate { objects, .. } => objects.iter().for_each(|(object, _)| f(*object, rights::WRITE)),
            Change::Allocate { runs, .. } => runs.iter().for_each(|(object, ..)| f(*object, rights::WRITE)),
        }
    }
}

/// Time in seconds for which a capability is valid.
pub const CAPABILITY_SECS: i64 = 600;
/// Purpose of the proofs of capabilities.
pub const CAPABILITY_PURPOSE: &[u8] = b"sheen capability 1";
/// Maximum capabilities of one `Present`.
pub const CAPABILITIES_MAX: usize = 8192;

/// The rights of a capability.
pub mod rights {
    /// Read the object's bytes.
    pub const READ: u8 = 1;
    /// Change the object, and lock it for changes.
    pub const WRITE: u8 = 2;
}

/// Permission of a client with a host's or user's key to use an object. The MDT makes it, and OSTs
/// check it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capability {
    /// The object.
    pub object: Fid,
    /// The rights on it: bits of [`rights`].
    pub rights: u8,
    /// End of its validity by the servers' clocks, in seconds since 1970.
    pub expires: i64,
    /// Proves that an MDT of the cluster made it for this holder. The purpose is
    /// [`CAPABILITY_PURPOSE`], the message is [`Capability::message`].
    pub proof: Proof,
}

impl Capability {
    /// Returns what the proof covers, for a capability in a file system. File systems of one MGS
    /// share keys. `holder`: as [`crate::auth::Role::holder`] returns it.
    pub fn message(fsname: &str, holder: &str, object: Fid, rights: u8, expires: i64) -> Vec<u8> {
        let mut message = Vec::with_capacity(32 + fsname.len() + holder.len());
        message.extend(object.seq.to_le_bytes());
        message.extend(object.oid.to_le_bytes());
        message.extend(object.ver.to_le_bytes());
        message.push(rights);
        message.extend(expires.to_le_bytes());
        message.extend(fsname.as_bytes());
        message.push(b' '); // a name of a file system has none
        message.extend(holder.as_bytes());
        message
    }
}

/// A request to an OST.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named after the system call's")]
pub enum Request {
    /// Reads the parts. The bulk of the reply is their bytes one after another, each cut at its
    /// object's end.
    Read { parts: Vec<Part> },
    /// Writes the request's bulk to the parts, in order; creates objects. `file`: the file to which
    /// they belong, for quotas. The MDT checks it. `sync`: durable before
    /// the reply. `mtime`: when the program wrote, if the bytes come from a cache. `held`: the
    /// client has a lock on the bytes, or had it before the OST was restarted, so an OST in
    /// recovery accepts them. Answered with `LockFirst` if it would have to wait and too many
    /// writes wait already.
    Write { file: Fid, parts: Vec<Part>, sync: bool, mtime: Option<Time>, grant: Grant, held: bool },
    /// Asks for sizes, space and times of objects.
    Attrs { objects: Vec<Fid> },
    /// Locks on objects, with their sizes, space and times as of the grant. Answered when all are
    /// granted or refused, in the order of the request. The client's own locks do not conflict.
    /// `want`: bytes of space to be granted in addition.
    Enqueue { locks: Vec<Enqueue>, want: u64 },
    /// Answers to glimpse callbacks ([`crate::ast::Callback::Glimpse`]): the attributes of the
    /// objects including the client's dirty data. `None`: the client has nothing to add.
    Glimpsed { answers: Vec<(LockId, Option<ObjectAttr>)> },
    /// Cancels locks. Unknown ones are ignored.
    Cancel { locks: Vec<LockId> },
    /// Truncates or extends objects to sizes. A missing object is created, unless its size is 0.
    /// `file`: as for `Write`.
    Truncate { file: Fid, objects: Vec<(Fid, u64)> },
    /// fallocate on runs: (object, offset, length). `file`: as for `Write`.
    Allocate { file: Fid, mode: Allocate, runs: Vec<(Fid, u64, u64)> },
    /// Finds the next data or hole at or after an offset.
    Seek { object: Fid, offset: u64, what: Seek },
    /// Answered when all bytes written to the objects are durable. An empty list means the whole
    /// OST.
    Sync { objects: Vec<Fid> },
    /// Destroys objects; answered when the removal is durable. Missing ones are ignored.
    Destroy { objects: Vec<Fid> },
    /// Destroys all objects of a sequence with `first <= oid <= last`: a restarted MDT destroys the
    /// objects of its lost creates.
    DestroyRange { seq: u64, first: u32, last: u32 },
    /// Asks for space and inodes of the OST.
    StatFs,
    /// Lists objects in an order of the OST's own: at most [`PARTS_MAX`] that follow `after`, or
    /// the first ones for [`Fid::ZERO`]. After the last object the list is empty.
    List { after: Fid },
    /// Asks for the data versions of objects; with `flush`, after all clients have flushed their
    /// dirty data of them. An object's version changes with each change of its bytes or size. The
    /// same version means the same bytes; another version means nothing. 0: never written.
    Versions { objects: Vec<Fid>, flush: bool },
    /// Seals objects whose versions are still the given ones (`None`: any). A sealed object refuses
    /// reads, writes and locks (`Errno::MOVED`), also after a restart and after it is destroyed,
    /// until `Unseal`. Before, clients have flushed and dropped everything that they cache of it.
    /// `group`: locks of this group do not conflict, and no program writes in it meanwhile.
    /// `order`: number of the request among those of this MDT, which rises for each object. EBUSY,
    /// and none is sealed: one has another version, or a client does not cancel its locks. EAGAIN:
    /// the OST is in recovery.
    Seal { objects: Vec<(Fid, Option<u64>)>, group: Option<u64>, order: u64 },
    /// Undoes `Seal`, for a file that retains its objects. Objects are ignored that are not sealed,
    /// or were sealed by a request of a higher `order`. In the latter case this request comes late,
    /// and the MDT does not wait for it any more. Executed also in recovery.
    Unseal { objects: Vec<Fid>, order: u64 },
    /// Gives each sealed object a second, never used name, under which it is not sealed, with all
    /// its bytes: (old, new). Answered when bytes and names are durable. A missing object gets no
    /// name: it reads as empty under either. EBUSY: one object is not sealed, or was sealed by a
    /// request of a higher `order`; some of the others may have their new names. EAGAIN: the OST is
    /// in recovery.
    Link { objects: Vec<(Fid, Fid)>, order: u64 },
    /// Asks for the present names of objects that `Link` renamed: the object itself if it is not
    /// sealed, else the last of its names. Used by a client that changed some of a file's objects
    /// before they were sealed, and must also change the others. `Errno::MOVED`: one is sealed and
    /// has no other name. EAGAIN: one has another name, and is being sealed there, too.
    Follow { objects: Vec<Fid> },
    /// First request of a client to a restarted OST: the client has dropped its locks. It is going
    /// to replay its changes, if the reply requests it, and to flush its dirty data. ESTALE: the
    /// OST did not wait for this client, so others may have changed its files since. The client
    /// discards its dirty data.
    Recover,
    /// Changes of a client that the OST may have lost, with ascending transnos: at most
    /// [`REPLAYS_MAX`]. `first`: the first of these requests on this connection. `last`: the client
    /// has no more. Answered when they are executed. ESTALE: the OST does not wait for this client.
    Replay { changes: Vec<(u64, Change)>, first: bool, last: bool },
    /// Since the restart the client has flushed all its dirty data, and its appends that were under
    /// way have ended. `incarnation`: that of the OST which got the data. Another one ignores the
    /// request.
    Recovered { incarnation: u64 },
    /// From the MDT, which has evicted the client of this uuid: evicts it here as well, so that
    /// nothing arrives any more that it sent by an old layout.
    Evict { client: String },
    /// Permits this client to use objects, until the capabilities expire or the client is new to
    /// the OST. At most [`CAPABILITIES_MAX`]. Invalid ones are ignored: the requests that need them
    /// get [`Errno::NO_CAPABILITY`].
    Present { capabilities: Vec<Capability> },
    /// From the MDT: sets files and owners of objects, also of those that do not exist yet.
    /// Answered when they are durable. At most [`OWNERS_MAX`]. `only_unowned`: objects whose owners
    /// are known stay as they are, and the others need not be durable.
    SetOwners { owners: Vec<Owned>, only_unowned: bool },
    /// From the MDT: answered with `QuotaNeeds` as soon as the OST needs something of the MDT for
    /// its quotas, or has found damage.
    QuotaWait,
    /// From the MDT: sets how many bytes the objects of these ids may use on the OST; `None`: any
    /// number. It may be less than they use. `all`: no other id has a limit. Also ends the waits of
    /// writes for these ids. Answered with `Used`.
    QuotaAllow { ids: Vec<(quota::Id, Option<u64>)>, all: bool },
    /// Asks for the use of ids from `first` on: at most [`USES_MAX`].
    QuotaUse { first: quota::Id },
    /// From the MDT: writes the request's bulk to offset `at` of a damaged block, unless the block
    /// has changed since. Bytes for a whole block are written only if they have its checksum. Of a
    /// larger block the MDT has computed the checksum before. Answered after the last bytes of a
    /// block when the block is intact and durable. ESTALE: the block has another checksum, or none,
    /// or is intact before its first bytes are written. EUCLEAN: the bytes do not have the
    /// checksum. EAGAIN: too many writes wait for locks.
    Repair { object: Fid, block: DamagedBlock, at: u64 },
    /// From the MDT: a step in which a lost object is made again from another mirror. It is lost
    /// until the last step. ESTALE: it is not lost, or the OST does not know the copy. ENOSPC: the
    /// remaining space is granted to clients. MOVED: the object is sealed.
    Recreate { object: Fid, step: Recreate },
    /// From the MDT: asks for the stored states of objects, for a check. Sealed objects have one as
    /// well. At most [`PARTS_MAX`].
    Stored { objects: Vec<Fid> },
}

/// Space that an OST grants to a client (Lustre's grants), in bytes. Flushing the client's dirty
/// data then never meets a full OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Grant {
    /// Granted bytes that the bytes of this request use up.
    pub used: u64,
    /// Additional bytes that the client wants.
    pub want: u64,
}

/// Size, space and times of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObjectAttr {
    /// Size in bytes; 0 if the object does not exist.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// Last write or truncate, by the OST's clock; `None` if the object was never written.
    pub mtime: Option<Time>,
}

/// A successful reply of an OST.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named in the comment")]
pub enum Reply {
    /// To `Destroy`, `DestroyRange`, `Seal`, `Unseal`, `Link`, `Recovered`, `Evict`, `Present`,
    /// `SetOwners`, `Repair` and `Recreate`: done.
    Ok,
    /// To `Read`: number of bytes of each part in the bulk, at most the requested ones.
    Read(Vec<u32>),
    /// To `Attrs`, in the order of the request.
    Attrs(Vec<ObjectAttr>),
    /// To `Enqueue`, in the order of the request.
    Enqueued {
        /// The locks.
        locks: Vec<(Enqueued, ObjectAttr)>,
        /// Bytes of space granted in addition.
        granted: u64,
        /// As in `Done`, for the objects of locks that permit writes.
        tight: bool,
    },
    /// To `Write`: nothing is written. The client repeats the write under a lock, so that the OST
    /// holds no bytes while the request waits.
    LockFirst,
    /// To `Seek`: the offset, or `None` if there is no more data (for `Hole`: never).
    Offset(Option<u64>),
    /// To `StatFs`.
    StatFs(StatFs),
    /// To `Write`, `Truncate`, `Allocate` and `Sync`: done.
    Done {
        /// Epoch of the OST's data in which it was done. Another one begins when the OST's host is
        /// restarted, or another host serves the OST, and the OST was not stopped in order. Changes
        /// that were not synced may be lost then. So if `Sync` returns another epoch than an
        /// earlier change, that change may be lost.
        epoch: u64,
        /// Bytes of space granted in addition.
        granted: u64,
        /// Objects with their transnos, if a change of several objects was not made in one step.
        /// Otherwise the transno of the reply is that of all of them.
        transnos: Vec<(Fid, u64)>,
        /// An owner of the objects is near a limit of space. The client is not to cache writes to
        /// the file: they might be refused after the program was answered.
        tight: bool,
    },
    /// To `Recover`.
    Recovering {
        /// The present epoch of the OST's data, as in `Done`.
        epoch: u64,
        /// Earlier epochs. If there is one, the client is to replay what it changed in it and does
        /// not know to be durable, also if there is nothing.
        lost: Vec<u64>,
    },
    /// To `Replay`, in the order of the request.
    Replayed(Vec<Result<()>>),
    /// To `List`; to `Follow`, in the order of the request.
    Objects(Vec<Fid>),
    /// To `Versions`, in the order of the request.
    Versions(Vec<u64>),
    /// To `QuotaWait`.
    QuotaNeeds {
        /// Objects whose owner is unknown, with their files: at most [`OWNERS_MAX`]. [`Fid::ZERO`]:
        /// the file is unknown, too.
        unowned: Vec<(Fid, Fid)>,
        /// Ids that need more space.
        wants: Vec<QuotaWant>,
        /// Damaged blocks and lost objects: at most [`DAMAGED_MAX`].
        damaged: Vec<Damaged>,
    },
    /// To `QuotaAllow`, in the order of the request: bytes that the ids use, with those that writes
    /// in progress may add.
    Used(Vec<u64>),
    /// To `QuotaUse`.
    QuotaUse {
        /// In ascending order.
        ids: Vec<(quota::Id, QuotaUse)>,
        /// Whether there are more ids after them.
        more: bool,
        /// Whether all objects of the OST are counted.
        complete: bool,
    },
    /// To `Stored`, in the order of the request.
    Stored(Vec<StoredObject>),
}

/// An id that needs more space on an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaWant {
    /// Whose.
    pub id: quota::Id,
    /// Bytes in use, with those that writes in progress may add.
    pub used: u64,
    /// Bytes that a waiting write would add; 0: none waits, but little is left.
    pub wanted: u64,
}

/// Use of an OST by an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QuotaUse {
    /// Bytes of the objects.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

impl Request {
    /// Returns the name for statistics, after Lustre's `obdfilter.*.stats`.
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
            Seal { .. } => "seal",
            Unseal { .. } => "unseal",
            Link { .. } => "link",
            Follow { .. } => "follow",
            Recover => "recover",
            Replay { .. } => "replay",
            Recovered { .. } => "recovered",
            Evict { .. } => "evict",
            Present { .. } => "present",
            SetOwners { .. } => "set_owners",
            QuotaWait => "quota_wait",
            QuotaAllow { .. } => "quota_allow",
            QuotaUse { .. } => "quota_use",
            Repair { .. } => "repair",
            Recreate { .. } => "recreate",
            Stored { .. } => "stored",
        }
    }

    /// Passes the objects that the request reads or changes to `f`, with the right that it needs.
    /// An object may be passed several times. Sizes and times need no right, as stat(2) does, and
    /// neither do names and locks for reading.
    pub fn uses(&self, mut f: impl FnMut(Fid, u8)) {
        use Request::*;
        match self {
            Read { parts } => parts.iter().for_each(|part| f(part.object, rights::READ)),
            Seek { object, .. } => f(*object, rights::READ),
            Versions { objects, .. } => objects.iter().for_each(|object| f(*object, rights::READ)),
            Write { parts, .. } => parts.iter().for_each(|part| f(part.object, rights::WRITE)),
            Truncate { objects, .. } => objects.iter().for_each(|(object, _)| f(*object, rights::WRITE)),
            Allocate { runs, .. } => runs.iter().for_each(|(object, ..)| f(*object, rights::WRITE)),
            Enqueue { locks, .. } => {
                let changes = locks.iter().filter(|lock| lock.mode.writes());
                changes.for_each(|lock| f(lock.resource.fid, rights::WRITE));
            }
            Replay { changes, .. } => changes.iter().for_each(|(_, change)| change.objects(&mut f)),
            Attrs { .. }
            | Glimpsed { .. }
            | Cancel { .. }
            | Sync { .. }
            | Destroy { .. }
            | DestroyRange { .. }
            | StatFs
            | List { .. }
            | Seal { .. }
            | Unseal { .. }
            | Link { .. }
            | Recover
            | Recovered { .. }
            | Follow { .. }
            | Evict { .. }
            | Present { .. }
            | SetOwners { .. }
            | QuotaWait
            | QuotaAllow { .. }
            | QuotaUse { .. }
            | Repair { .. }
            | Recreate { .. }
            | Stored { .. } => {}
        }
    }

    /// Whether only servers send it.
    pub fn is_of_servers(&self) -> bool {
        use Request::*;
        matches!(
            self,
            Destroy { .. }
                | DestroyRange { .. }
                | List { .. }
                | Seal { .. }
                | Unseal { .. }
                | Link { .. }
                | Evict { .. }
                | SetOwners { .. }
                | QuotaWait
                | QuotaAllow { .. }
                | QuotaUse { .. }
                | Repair { .. }
                | Recreate { .. }
                | Stored { .. }
        )
    }
}
