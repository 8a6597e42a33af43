//! The metadata protocol: requests of a client to an MDT.
//!
//! One request is one action of a user (design, section 6): `OpenCreate` is lookup, create, layout
//! and open in one round trip. The MDT checks permissions itself from [`Cred`]. Times come from the
//! MDT's clock.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Attr, Cred, Errno, Fid, FileKind, StatFs, Time,
    ast::Grant,
    auth::Proof,
    ldlm::{Cookie, Enqueue, Enqueued, LockId},
    ost::{Capability, ObjectAttr},
};

pub use crate::opener::{Opener, Reopened};

/// Longest name of an entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes (PATH_MAX with its NUL is 4096).
pub const SYMLINK_MAX: usize = 4095;
/// Longest name and value of an extended attribute, in bytes (Linux's XATTR_NAME_MAX and
/// XATTR_SIZE_MAX).
pub const XATTR_NAME_MAX: usize = 255;
/// See [`XATTR_NAME_MAX`].
pub const XATTR_SIZE_MAX: usize = 65536;
/// Maximum hard links of one file, as Lustre on ldiskfs.
pub const LINK_MAX: u32 = 65000;

/// Maximum bytes of inline DoM data ([`InlineDom`]): about what a fast network carries in the time
/// that a request takes.
pub const INLINE_DOM_BYTES_MAX: u64 = 16 << 10;

/// Handle of a file that a client opened locally, under a lock on [`crate::ldlm::bits::OPEN`]: the
/// MDT has no open file.
pub const NO_HANDLE: u64 = 0;
/// Relatime: a read updates an access time older than this, even if it is newer than the last
/// change. In seconds: a day, as on Linux.
pub const RELATIME_SECS: u64 = 24 * 3600;

/// Feature bit of an MDT: it has a data service ([`crate::mgs::data_name`]).
pub const FEATURE_DATA: u64 = 1;

/// Maximum files of one `Close`.
pub const CLOSED_MAX: usize = 256;
/// Maximum changes of one `Replay`.
pub const REPLAYS_MAX: usize = 4096;
/// Maximum layouts of one `AdoptLayouts`.
pub const LAYOUTS_MAX: usize = 1024;
/// Maximum files of one `Reopen`.
pub const REOPENS_MAX: usize = 16384;
/// Maximum sequences of one `OwnSequences`.
pub const SEQUENCES_MAX: usize = 64;
/// Maximum locks of one `Relock`.
pub const RELOCKS_MAX: usize = 8192;

/// Whether a read at `now` updates the access time, by the rules of `relatime`. It does if the
/// access time is not newer than the last change of content or attributes, or is older than
/// `relatime_secs`.
pub fn reading_shows(attr: &Attr, now: Time, relatime_secs: u64) -> bool {
    attr.atime <= attr.mtime
        || attr.atime <= attr.ctime
        || now.sec.saturating_sub(attr.atime.sec) >= relatime_secs as i64
}

/// Linux's open flags with the values of x86-64, whatever the client's processor.
pub mod flags {
    /// Access mode bits.
    pub const ACCMODE: u32 = 0o3;
    /// Read only.
    pub const RDONLY: u32 = 0;
    /// Write only.
    pub const WRONLY: u32 = 1;
    /// Read and write.
    pub const RDWR: u32 = 2;
    /// Create if missing.
    pub const CREAT: u32 = 0o100;
    /// With CREAT: fail if it exists.
    pub const EXCL: u32 = 0o200;
    /// Truncate to size 0.
    pub const TRUNC: u32 = 0o1000;
    /// Writes go to the end.
    pub const APPEND: u32 = 0o2000;
    /// Data and size durable before a write returns.
    pub const DSYNC: u32 = 0o10000;
    /// Bypass the caches.
    pub const DIRECT: u32 = 0o40000;
    /// Fail unless a directory.
    pub const DIRECTORY: u32 = 0o200000;
    /// Data and attributes durable before a write returns (includes DSYNC).
    pub const SYNC: u32 = 0o4010000;
    /// Open for writing without allocating a layout: a program is about to set one. This is
    /// Lustre's `O_LOV_DELAY_CREATE`; to the kernel it is O_ASYNC, which means nothing for files.
    /// If no layout is set, the first write allocates it.
    pub const LAYOUT_LATER: u32 = 0o20000;
    /// Opened for execution (`FMODE_EXEC`, set by the kernel for exec).
    pub const EXEC: u32 = 0o40;

    /// Whether the flags allow writing.
    pub fn writes(f: u32) -> bool {
        matches!(f & ACCMODE, WRONLY | RDWR)
    }

    /// Whether the flags allow reading.
    pub fn reads(f: u32) -> bool {
        matches!(f & ACCMODE, RDONLY | RDWR)
    }
}

/// `renameat2` flags.
pub mod rename {
    /// Fail with EEXIST if the target exists.
    pub const NOREPLACE: u32 = 1;
    /// Swap the two.
    pub const EXCHANGE: u32 = 2;
    /// Leave a whiteout, the character device 0:0, under the source's name, as overlayfs requires.
    pub const WHITEOUT: u32 = 4;
}

/// `setxattr` flags.
pub mod xattr {
    /// Fail with EEXIST if present.
    pub const CREATE: u32 = 1;
    /// Fail with ENODATA if absent.
    pub const REPLACE: u32 = 2;
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// The MDT's present time (allowed to callers that may write).
    Now,
    /// This time (allowed only to the owner).
    At(Time),
}

/// Attributes to set; `None` leaves one unchanged.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits, 0o7777.
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size. The MDT checks it, sets the times, allocates a layout if the file has none, and
    /// returns the layout. The client then truncates or extends the objects.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last modification.
    pub mtime: Option<SetTime>,
    /// Clear set-user-id and set-group-id as a write by an unprivileged process does.
    pub kill_priv: bool,
}

/// Kind of a new entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NewNode {
    /// mkdir.
    Dir,
    /// symlink, with its target.
    Symlink(Bytes),
    /// mknod: fifo, socket, device, or a regular file that gets its layout later (at
    /// `SetXattr lustre.lov`, or at its first open for writing).
    Node {
        /// Any kind but `Dir` and `Symlink`.
        kind: FileKind,
        /// Device number for devices, else 0.
        rdev: u32,
    },
}

/// Message to an MDT: a request, and changes to the client's locks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// The client wants to cache the reply: the MDT grants locks with it if no other locks
    /// conflict. Their handles are this one and those that follow it, one for each inode in the
    /// reply.
    pub keep: Option<Cookie>,
    /// The client also wants inline DoM data: its handle for a lock at the MDT's data service. With
    /// [`Request::Lookup`].
    pub inline_dom: Option<Cookie>,
    /// Locks that the client cancels; processed before anything else.
    pub cancels: Vec<LockId>,
    /// Locks of which the client retains only these bits; processed next. Unknown locks, and those
    /// that have lost bits since, are ignored.
    pub converts: Vec<(LockId, u64)>,
}

impl From<Request> for Call {
    fn from(request: Request) -> Call {
        Call { request, keep: None, inline_dom: None, cancels: Vec::new(), converts: Vec::new() }
    }
}

/// Message from an MDT: a reply, locks, and invalidations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// Locks that the client holds from now on, at most one per inode.
    pub grants: Vec<Grant>,
    /// Inodes deleted by this request: the client must drop them from its cache.
    pub deleted: Vec<Fid>,
    /// Attributes, after the request, of the directory in which it created or removed an entry: for
    /// [`Request::Create`], [`Request::OpenCreate`] and [`Request::Unlink`].
    pub dir: Option<Attr>,
    /// Inodes that the request changed in any part: for [`Request::Unlink`] and
    /// [`Request::Rename`].
    pub invalidations: Vec<Fid>,
    /// Inline DoM data, if all objects of the file are at the MDT's data service and no other lock
    /// conflicted.
    pub inline_dom: Option<InlineDom>,
    /// For a request that changed something and may have to be replayed.
    pub change: Option<Change>,
    /// For a client that is not trusted with all objects, after an open: capabilities for the
    /// file's objects.
    pub capabilities: Vec<Capability>,
}

/// The MDT's decisions when it executed a request. With them a replay has the same result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Time of all changes of the request.
    pub time: Time,
    /// Layout that the request gave to a file, unless the reply has it.
    pub layout: Option<Bytes>,
    /// For a client with a host's or user's key: proves the change in a replay. It covers the MDT,
    /// the client's role, the call, the transno, the time, the layout and the opened file.
    pub proof: Option<Proof>,
}

/// A change that the MDT had answered. The client does not know whether it was committed before the
/// MDT was restarted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replay {
    /// Transno of the change.
    pub transno: u64,
    /// The encoded [`Call`]. Encoded, so that a replay cannot contain another one.
    pub call: Bytes,
    /// Time of the change.
    pub time: Time,
    /// Layout of the file concerned, after the request.
    pub layout: Option<Bytes>,
    /// All files that the request's names referred to, and perhaps others. Empty: unknown.
    pub named: Vec<Fid>,
    /// As in [`Change`].
    pub proof: Option<Proof>,
}

/// Inline DoM data: a lock (PR) on a whole object of the MDT's data service, and the object's
/// attributes. Its bytes are the bulk of the reply, if they are at most [`INLINE_DOM_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InlineDom {
    /// The lock.
    pub id: LockId,
    /// The object.
    pub object: Fid,
    /// Its size, space and times.
    pub attr: ObjectAttr,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer {
            reply,
            grants: Vec::new(),
            deleted: Vec::new(),
            dir: None,
            invalidations: Vec::new(),
            inline_dom: None,
            change: None,
            capabilities: Vec::new(),
        }
    }
}

/// A request to an MDT.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named after the system call's")]
pub enum Request {
    /// Asks for a new sequence from which the client names files.
    AllocSeq,
    /// Asks for the directory to be mounted: the one at this path from the directory that the
    /// client may mount. Symbolic links are not followed. ENOTDIR: it is something else.
    Root { path: String },
    /// Looks up an entry of a directory, with attributes. `.` and `..` are allowed.
    Lookup { cred: Cred, parent: Fid, name: Bytes },
    /// Asks for attributes. `layout_known` leaves the layout out of the reply.
    GetAttr { fid: Fid, layout_known: bool },
    /// chmod, chown, utimensat, truncate. `handle`: the open file of an ftruncate, which was
    /// checked at open.
    SetAttr { cred: Cred, fid: Fid, set: SetAttr, handle: Option<u64> },
    /// access(2): `mask` is R_OK 4, W_OK 2, X_OK 1.
    Access { cred: Cred, fid: Fid, mask: u32 },
    /// mkdir, mknod, symlink. `fid`: chosen by the client from its sequence.
    Create { cred: Cred, parent: Fid, name: Bytes, fid: Fid, node: NewNode, mode: u32, umask: u32 },
    /// open of a known file.
    Open { cred: Cred, fid: Fid, flags: u32 },
    /// open(O_CREAT): looks up, creates if missing (as `fid`), opens.
    OpenCreate { cred: Cred, parent: Fid, name: Bytes, fid: Fid, flags: u32, mode: u32, umask: u32 },
    /// open(O_TMPFILE): an orphan, deleted at its last close unless it was linked before.
    TmpFile { cred: Cred, parent: Fid, fid: Fid, flags: u32, mode: u32, umask: u32 },
    /// Closes files that programs closed some moments ago. At most [`CLOSED_MAX`]; handles that are
    /// not the client's are ignored.
    Close { files: Vec<Closed> },
    /// unlink (`dir` false) or rmdir (`dir` true).
    Unlink { cred: Cred, parent: Fid, name: Bytes, dir: bool },
    /// renameat2. `whiteout`: the FID of the whiteout, chosen by the client from its sequence; with
    /// [`rename::WHITEOUT`], and only with it. Boxed, because it is rare and requests are moved
    /// often.
    Rename {
        cred: Cred,
        parent: Fid,
        name: Bytes,
        new_parent: Fid,
        new_name: Bytes,
        flags: u32,
        whiteout: Option<Box<Fid>>,
    },
    /// link: adds a name to a file.
    Link { cred: Cred, fid: Fid, parent: Fid, name: Bytes },
    /// The target of a symbolic link.
    ReadLink { fid: Fid },
    /// Entries after `cookie` (0: from the start), about `max_bytes` of them. Permission was
    /// checked at open. `attrs` requests attributes and layouts too. The client adds `.` and `..`.
    ReadDir { fid: Fid, cookie: u64, max_bytes: u32, attrs: bool },
    /// Value of an extended attribute; also `lustre.lov`, `trusted.lov`, `trusted.link`,
    /// `trusted.lma`.
    GetXattr { cred: Cred, fid: Fid, name: Bytes },
    /// Sets an extended attribute; `flags` from [`xattr`]. `lustre.lov` sets the layout.
    SetXattr { cred: Cred, fid: Fid, name: Bytes, value: Bytes, flags: u32 },
    /// Names of extended attributes that the caller may see.
    ListXattr { cred: Cred, fid: Fid },
    /// Removes an extended attribute.
    RemoveXattr { cred: Cred, fid: Fid, name: Bytes },
    /// Space and inodes of the MDT.
    StatFs,
    /// Answered when everything that this MDT executed before is durable (with a FID: when that
    /// file's metadata is).
    Sync { fid: Option<Fid> },
    /// All paths of a file, from the root, without leading `/`: for fid2path. Superuser only, as in
    /// Lustre.
    Paths { cred: Cred, fid: Fid },
    /// The (parent, name) pairs of a file: for path2fid --parents.
    Parents { fid: Fid },
    /// Opens files that the client has open, so that orphans stay alive for it. After a restart of
    /// the MDT these are all its open files. Otherwise these are files that it opened locally, and
    /// whose OPEN lock it is about to cancel. The reply is `Handles` in the same order. After a
    /// restart `first` and `last` mark the first and the last of these requests on this connection.
    /// Then the MDT closes what the client opened with such requests on an earlier connection,
    /// because it may not have got the handles.
    Reopen { files: Vec<Reopened>, first: bool, last: bool },
    /// Cancels locks (those in [`Call::cancels`] and [`Call::converts`]). Unknown ones are ignored.
    Cancel,
    /// fcntl(2) and flock(2): a lock of a program ([`crate::ldlm::Kind::Flock`]); `Nl` unlocks,
    /// `test` checks (F_GETLK). A lock that has to wait is answered with `Waiting`; cancelling its
    /// id ends the wait.
    Enqueue(Enqueue),
    /// Announces a write of bytes `[start, end)` of a regular file. Every component of the layout
    /// in that range gets its objects, if it has none. Extensions in the range add to the
    /// components that they extend. The reply has the layout, changed or not. Permission was
    /// checked at open; `opener` is for the changelog. ENODATA if the layout ends at or before
    /// `start`.
    ///
    /// Other clients cancel their LAYOUT locks before the reply is sent. So the caller must not
    /// hold anything that keeps it from cancelling its own LAYOUT lock. Otherwise two callers would
    /// wait for each other.
    LayoutIntent { fid: Fid, start: u64, end: u64, opener: Opener },
    /// The file replaces its objects by those of `from`, an orphan of the caller, to which its
    /// bytes were copied (`lfs migrate`). `versions`: all objects of the file, each with its data
    /// version from before the copy. For a mirrored file also its own FID with the generation of
    /// its layout. `group`: as in [`crate::ost::Request::Seal`]. `mtime`: when the file was last
    /// changed. EBUSY, and nothing is done: another client has written to the file since, is
    /// writing, or uses a group lock.
    ///
    /// Answered when the change is durable, and other clients have cancelled their LAYOUT locks. A
    /// request with the old layout gets `Errno::MOVED` from the OSTs.
    TakeLayout { cred: Cred, fid: Fid, from: Fid, versions: Vec<(Fid, u64)>, group: Option<u64>, mtime: Time },
    /// An OST has sealed an object of the file's layout of this generation. Answered with the
    /// file's layout when no operation changes it any more. If that is still the same layout, its
    /// objects are not sealed any more.
    LayoutMoved { fid: Fid, generation: u32 },
    /// Two regular files exchange their objects: each has the other's bytes, size and striping, and
    /// is otherwise unchanged (Lustre's swap_layouts). `mtimes`: when each was last changed.
    /// `nonce`: a random number for this exchange, so that a resend after a restart does not
    /// exchange them back.
    ///
    /// EPERM: their users or groups differ. EBUSY, and nothing is done: a client does not cancel
    /// its locks on one, or keeps giving it objects, or one is mirrored and one is open elsewhere.
    /// Answered as `TakeLayout`.
    SwapLayouts { cred: Cred, fids: [Fid; 2], mtimes: [Time; 2], nonce: u64 },
    /// To a restarted MDT, before anything else: changes whose commit the client has not heard of,
    /// with ascending transnos. At most [`REPLAYS_MAX`]. `first`: the first of these requests on
    /// this connection. `last`: the client has no more. Answered when all of them are executed.
    ///
    /// ESTALE: the MDT does not wait for this client. Changes that were not reported as committed
    /// may be lost.
    Replay { replays: Vec<Replay>, first: bool, last: bool },
    /// In a recovery, before `Reopen`: the layouts of open files as the client knows them. The MDT
    /// adopts those that are newer than its own. It had decided on them for another client that did
    /// not get the answer, so nobody replays them. At most [`LAYOUTS_MAX`].
    AdoptLayouts { layouts: Vec<(Fid, Bytes)> },
    /// In a recovery, after `Reopen`: takes the locks of programs again that the client's programs
    /// held before the restart. At most [`RELOCKS_MAX`]. Answered with `Replayed`. ESTALE: the MDT
    /// did not wait for this client, so others may have had the locks meanwhile.
    Relock { locks: Vec<Enqueue> },
    /// The client has replayed its changes, opened its files and taken its locks again.
    Recovered,
    /// To a restarted MDT, before `Replay`: the sequences from which a client with a host's or
    /// user's key names files, with their proofs ([`Reply::OwnSeq`]). At most [`SEQUENCES_MAX`].
    OwnSequences { sequences: Vec<(u64, Proof)> },
    /// Asks for capabilities for all objects of a file, as far as the caller may use it.
    Capabilities { fid: Fid },
    /// Asks for durable records of the changelog, from number `start` on, of at most `bytes_max` in
    /// total. Superuser only, and not for clients with limits (EPERM). The reply is `Bytes`:
    /// [`crate::changelog::encode`]; without records if there are none yet. With `notify`, a
    /// [`crate::ast::Callback::Changelog`] follows when there are some.
    Changelog { cred: Cred, start: u64, bytes_max: u32, notify: bool },
    /// A user of the changelog needs no records up to number `end` any more (0: up to the last
    /// one). Superuser only. ENOENT: there is no such user. EINVAL: there is no such record yet.
    ChangelogClear { cred: Cred, user: u32, end: u64 },
}

/// A file that a client has closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Closed {
    /// FID of the file.
    pub fid: Fid,
    /// The MDT's handle, or [`NO_HANDLE`]: the client had opened the file locally.
    pub handle: u64,
    /// If it was read: microseconds since it was closed, for the access time. They count until the
    /// request arrives at the MDT ([`Request::delay`]).
    pub read: Option<u64>,
}

/// A file's attributes and, for a regular file that has one, its layout in Lustre's binary form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Attributes as the MDT knows them.
    pub attr: Attr,
    /// `lustre.lov` bytes.
    pub layout: Option<Bytes>,
    /// Whether it may have extended attributes of its own, or an ACL. Generated attributes
    /// (`lustre.lov`) do not count.
    pub xattrs: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirEntry {
    /// Name.
    pub name: Bytes,
    /// FID of the file.
    pub fid: Fid,
    /// File type.
    pub kind: FileKind,
    /// Position for continuing after this entry: stable as long as the entry exists, above 2, below
    /// 2^63.
    pub cookie: u64,
    /// Attributes, if requested.
    pub entry: Option<Entry>,
}

/// A successful reply of an MDT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Ok,
    /// To `AllocSeq`.
    Seq(u64),
    /// To `AllocSeq` of a client with a host's or user's key: the proof that it may name files from
    /// the sequence.
    OwnSeq(u64, Proof),
    /// To `Lookup`, `GetAttr`, `SetAttr`, `Create`, `Link`, `LayoutIntent`, `LayoutMoved`.
    Entry(Entry),
    /// To `Open`, `OpenCreate`, `TmpFile`.
    Opened {
        /// Handle of the open file for `Close` and `SetAttr`. Unique while this MDT runs, and never
        /// [`NO_HANDLE`].
        handle: u64,
        /// Attributes after the open.
        entry: Entry,
        /// Whether this request created the file.
        created: bool,
        /// An owner of the file is near a limit of space: the client is not to cache writes to it.
        tight: bool,
    },
    /// To `ReadLink`, `GetXattr` and `Changelog`.
    Bytes(Bytes),
    /// To `ListXattr`.
    Names(Vec<Bytes>),
    /// To `ReadDir`.
    Entries {
        /// In cookie order.
        entries: Vec<DirEntry>,
        /// Whether these were the last.
        eof: bool,
    },
    /// To `StatFs`.
    StatFs(StatFs),
    /// To `Paths`.
    Paths(Vec<Bytes>),
    /// To `Parents`.
    Parents(Vec<(Fid, Bytes)>),
    /// To `Reopen`.
    Handles(Vec<Result<u64, Errno>>),
    /// To `Enqueue`.
    Enqueued(Enqueued),
    /// To `Close`: attributes of the files that were read and still have a name, in the same order.
    Attrs(Vec<Attr>),
    /// To `Replay` and `Relock`: the outcome of each change or lock, in the same order.
    Replayed(Vec<Result<(), Errno>>),
    /// To `Capabilities`; empty if the caller may neither read nor write the file.
    Capabilities(Vec<Capability>),
    /// To `OwnSequences`: those from which the client may still name files.
    Sequences(Vec<u64>),
    /// To `Root`.
    Root {
        /// The directory.
        fid: Fid,
        /// Whether the client may change nothing.
        read_only: bool,
    },
}

impl Request {
    /// Returns a request that closes one open file, of which nothing was read.
    pub fn close(fid: Fid, handle: u64) -> Request {
        Request::Close { files: vec![Closed { fid, handle, read: None }] }
    }

    /// Whether it removes names, so that only the reply tells for certain which inodes they
    /// referred to ([`Answer::invalidations`]).
    pub fn takes_names(&self) -> bool {
        matches!(self, Request::Unlink { .. } | Request::Rename { .. })
    }

    /// Whether the request changes something that a second execution would change again or refuse.
    pub fn modifies(&self) -> bool {
        use Request::*;
        !matches!(
            self,
            Root { .. }
                | Lookup { .. }
                | GetAttr { .. }
                | Access { .. }
                | ReadLink { .. }
                | ReadDir { .. }
                | GetXattr { .. }
                | ListXattr { .. }
                | StatFs
                | Sync { .. }
                | Paths { .. }
                | Parents { .. }
                | Cancel
                | Enqueue(_)
                | LayoutMoved { .. }
                | Replay { .. }
                | AdoptLayouts { .. }
                | Relock { .. }
                | Recovered
                | OwnSequences { .. }
                | Capabilities { .. }
                | Changelog { .. }
                | ChangelogClear { .. }
        )
    }

    /// Whether a client replays the request to a restarted MDT, if it changed something. The others
    /// are answered when their change is durable, or the client repeats them in another way.
    pub fn is_replayed(&self) -> bool {
        use Request::*;
        match self {
            Close { files } => !files.is_empty(),
            _ => matches!(
                self,
                Create { .. }
                    | Open { .. }
                    | OpenCreate { .. }
                    | TmpFile { .. }
                    | Unlink { .. }
                    | Rename { .. }
                    | Link { .. }
                    | SetAttr { .. }
                    | SetXattr { .. }
                    | RemoveXattr { .. }
                    | LayoutIntent { .. }
            ),
        }
    }

    /// Changes an executed request into the one that the client replays. The MDT does the same
    /// before it proves the change ([`Change::proof`]). `time`: [`Change::time`]. Returns whether
    /// anything was changed.
    ///
    /// * A create that made its file becomes exclusive. The name may refer to another file, if the
    ///   change that had removed that one is lost.
    /// * A close retains the reads that the MDT accepted, with the access times of the reply. Its
    ///   own ages may be others than those that the MDT has executed, if it was sent twice. Its
    ///   handles do not exist any more.
    pub fn prepare_replay(&mut self, reply: &Reply, time: Time) -> bool {
        match (self, reply) {
            (Request::OpenCreate { flags, .. }, Reply::Opened { created: true, .. }) => *flags |= flags::EXCL,
            (Request::Close { files }, Reply::Attrs(attrs)) => {
                let mut accepted = attrs.iter().peekable();
                files.retain_mut(|closed| {
                    closed.handle = NO_HANDLE;
                    if closed.read.is_some() {
                        let attr = accepted.next_if(|attr| attr.fid == closed.fid);
                        // Otherwise, another request has set the access time.
                        closed.read = attr.and_then(|attr| time.whole_micros_since(attr.atime));
                    }
                    closed.read.is_some()
                });
            }
            _ => return false,
        }
        true
    }

    /// Adds a wait at the client to a request that says how long ago something happened. Returns
    /// false, and does nothing, if it says no such thing.
    pub fn delay(&mut self, wait: Duration) -> bool {
        let Request::Close { files } = self else { return false };
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let mut says = false;
        for age in files.iter_mut().filter_map(|closed| closed.read.as_mut()) {
            (says, *age) = (true, age.saturating_add(micros));
        }
        says
    }

    /// Returns the name for statistics, after Lustre's `md_stats` and `mdt.*.md_stats`.
    pub fn op(&self) -> &'static str {
        use Request::*;
        match self {
            AllocSeq => "alloc_seq",
            Root { .. } => "root",
            Lookup { .. } => "lookup",
            GetAttr { .. } => "getattr",
            SetAttr { .. } => "setattr",
            Access { .. } => "access",
            Create { node: NewNode::Dir, .. } => "mkdir",
            Create { node: NewNode::Symlink(_), .. } => "symlink",
            Create { .. } => "mknod",
            Open { .. } => "open",
            OpenCreate { .. } => "create",
            TmpFile { .. } => "tmpfile",
            Close { .. } => "close",
            Unlink { dir: false, .. } => "unlink",
            Unlink { dir: true, .. } => "rmdir",
            Rename { .. } => "rename",
            Link { .. } => "link",
            ReadLink { .. } => "readlink",
            ReadDir { .. } => "readdir",
            GetXattr { .. } => "getxattr",
            SetXattr { .. } => "setxattr",
            ListXattr { .. } => "listxattr",
            RemoveXattr { .. } => "removexattr",
            StatFs => "statfs",
            Sync { .. } => "sync",
            Paths { .. } => "fid2path",
            Parents { .. } => "parents",
            Reopen { .. } => "reopen",
            Cancel => "ldlm_cancel",
            Enqueue(_) => "ldlm_enqueue",
            LayoutIntent { .. } => "layout_intent",
            TakeLayout { .. } => "take_layout",
            LayoutMoved { .. } => "layout_moved",
            SwapLayouts { .. } => "swap_layouts",
            Replay { .. } => "replay",
            AdoptLayouts { .. } => "adopt_layouts",
            Relock { .. } => "relock",
            Recovered => "recovered",
            OwnSequences { .. } => "own_sequences",
            Capabilities { .. } => "capabilities",
            Changelog { .. } => "changelog",
            ChangelogClear { .. } => "changelog_clear",
        }
    }

    /// Returns the credentials of the caller, if the request has some.
    pub fn cred_mut(&mut self) -> Option<&mut Cred> {
        use Request::*;
        match self {
            Lookup { cred, .. }
            | SetAttr { cred, .. }
            | Access { cred, .. }
            | Create { cred, .. }
            | Open { cred, .. }
            | OpenCreate { cred, .. }
            | TmpFile { cred, .. }
            | Unlink { cred, .. }
            | Rename { cred, .. }
            | Link { cred, .. }
            | GetXattr { cred, .. }
            | SetXattr { cred, .. }
            | ListXattr { cred, .. }
            | RemoveXattr { cred, .. }
            | Paths { cred, .. }
            | TakeLayout { cred, .. }
            | SwapLayouts { cred, .. }
            | Changelog { cred, .. }
            | ChangelogClear { cred, .. } => Some(cred),
            AllocSeq
            | Root { .. }
            | GetAttr { .. }
            | Close { .. }
            | ReadLink { .. }
            | ReadDir { .. }
            | StatFs
            | Sync { .. }
            | Parents { .. }
            | Reopen { .. }
            | Cancel
            | Enqueue(_)
            | LayoutIntent { .. }
            | LayoutMoved { .. }
            | Replay { .. }
            | AdoptLayouts { .. }
            | Relock { .. }
            | Recovered
            | OwnSequences { .. }
            | Capabilities { .. } => None,
        }
    }
}

impl Answer {
    /// Calls `f` with all attributes in the answer, in which a client can see users and groups.
    pub fn attrs_mut(&mut self, f: &mut impl FnMut(&mut Attr)) {
        self.dir.iter_mut().for_each(&mut *f);
        match &mut self.reply {
            Reply::Entry(entry) | Reply::Opened { entry, .. } => f(&mut entry.attr),
            Reply::Entries { entries, .. } => {
                entries.iter_mut().filter_map(|e| e.entry.as_mut()).for_each(|entry| f(&mut entry.attr));
            }
            Reply::Attrs(attrs) => attrs.iter_mut().for_each(f),
            Reply::Ok
            | Reply::Seq(_)
            | Reply::OwnSeq(..)
            | Reply::Bytes(_)
            | Reply::Names(_)
            | Reply::StatFs(_)
            | Reply::Paths(_)
            | Reply::Parents(_)
            | Reply::Handles(_)
            | Reply::Enqueued(_)
            | Reply::Replayed(_)
            | Reply::Capabilities(_)
            | Reply::Sequences(_)
            | Reply::Root { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_of_a_close_counts_for_the_files_that_were_read() {
        let closed = |oid, read| Closed { fid: Fid::new(7, oid), handle: NO_HANDLE, read };
        let mut close = Request::Close { files: vec![closed(1, Some(10)), closed(2, None), closed(3, Some(0))] };
        assert!(close.delay(Duration::from_secs(7200)));
        let Request::Close { files } = &close else { panic!() };
        let hours = 7_200_000_000;
        assert_eq!(files[..], [closed(1, Some(hours + 10)), closed(2, None), closed(3, Some(hours))]);
        assert!(!Request::close(Fid::new(7, 1), 5).delay(Duration::from_secs(1)), "nothing was read");
        assert!(!Request::StatFs.delay(Duration::from_secs(1)));
    }

    #[test]
    fn replayed_close_has_the_reads_that_the_mdt_accepted() {
        let fid = |oid| Fid::new(7, oid);
        let closed = |oid, handle, read| Closed { fid: fid(oid), handle, read };
        let attr = |oid| Attr::new(fid(oid), FileKind::Regular, 0o644, Time::default());
        let files = vec![
            closed(1, 5, Some(10)),
            closed(2, 6, None),
            closed(3, NO_HANDLE, Some(20)),
            closed(4, NO_HANDLE, Some(20)),
        ];
        let (mut close, time) = (Request::Close { files }, Time { sec: 0, nsec: 30_000 });
        let set = Attr { atime: Time { sec: 0, nsec: 29_999 }, ..attr(4) };
        assert!(close.prepare_replay(&Reply::Attrs(vec![attr(3), set]), time) && close.is_replayed());
        let Request::Close { files } = &close else { panic!("{close:?}") };
        assert_eq!(*files, [closed(3, NO_HANDLE, Some(30))], "the first is deleted, the last has another time");
        // Nothing was accepted, or the answer shows nothing.
        assert!(close.prepare_replay(&Reply::Attrs(Vec::new()), time) && !close.is_replayed());
    }
}
