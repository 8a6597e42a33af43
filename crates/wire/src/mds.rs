//! The metadata protocol: what a client asks of an MDT.
//!
//! One request is one action of a user (design, section 6): `OpenCreate` is lookup, create, layout
//! and open in one round trip. The MDT checks permissions itself from [`Cred`]; times are the MDT's
//! own.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Attr, Cred, Errno, Fid, FileKind, StatFs, Time,
    ast::Grant,
    ldlm::{Cookie, Enqueue, Enqueued, LockId},
    ost::ObjectAttr,
};

/// Longest name of an entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes (PATH_MAX with its NUL is 4096).
pub const SYMLINK_MAX: usize = 4095;
/// Longest name and value of an extended attribute, in bytes (Linux's XATTR_NAME_MAX and
/// XATTR_SIZE_MAX).
pub const XATTR_NAME_MAX: usize = 255;
/// See [`XATTR_NAME_MAX`].
pub const XATTR_SIZE_MAX: usize = 65536;
/// Most hard links of one file, as Lustre on ldiskfs.
pub const LINK_MAX: u32 = 65000;

/// Most bytes of a file on the MDT that come with its name ([`Beginning`]): about what a fast
/// network carries in the time that a request takes.
pub const BEGINNING_BYTES_MAX: u64 = 16 << 10;

/// No open file of the MDT: the handle of a file that a client opened by itself, under a lock on
/// [`crate::ldlm::bits::OPEN`].
pub const NO_HANDLE: u64 = 0;
/// Access times older than this are renewed by a read even if newer than the last change, in
/// seconds: a day, as on Linux.
pub const RELATIME_SECS: u64 = 24 * 3600;

/// Most files of one `Close`.
pub const CLOSED_MAX: usize = 256;

/// Whether reading a file at `now` moves its access time, by the rules of `relatime`: if it is not
/// newer than the last change of content or attributes, or older than `relatime_secs`.
pub fn reading_shows(attr: &Attr, now: Time, relatime_secs: u64) -> bool {
    attr.atime <= attr.mtime
        || attr.atime <= attr.ctime
        || now.sec.saturating_sub(attr.atime.sec) >= relatime_secs as i64
}

/// Linux's open flags as they are on x86-64, whatever the client's processor.
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
    /// Cut to nothing.
    pub const TRUNC: u32 = 0o1000;
    /// Writes go to the end.
    pub const APPEND: u32 = 0o2000;
    /// Data and size durable before a write returns.
    pub const DSYNC: u32 = 0o10000;
    /// Past the caches.
    pub const DIRECT: u32 = 0o40000;
    /// Fail unless a directory.
    pub const DIRECTORY: u32 = 0o200000;
    /// Data and attributes durable before a write returns (includes DSYNC).
    pub const SYNC: u32 = 0o4010000;
    /// For writing without giving the file a layout, if it has none: somebody is about to set one
    /// (Lustre's `O_LOV_DELAY_CREATE`; to the kernel it is O_ASYNC, which means nothing for files).
    /// If nobody does, the first write does.
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
    /// Leave a whiteout, the character device 0:0, under the source's name, as overlayfs wants it.
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
    /// The MDT's present time (allowed to anyone who may write).
    Now,
    /// This time (the owner's alone).
    At(Time),
}

/// Which attributes to set; `None` leaves one as it is.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits, 0o7777.
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size. The MDT checks and stamps the times, gives the file its layout if it has none, and
    /// answers the layout; the client then cuts or extends the objects.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last modification.
    pub mtime: Option<SetTime>,
    /// Clear set-user-id and set-group-id as a write by an unprivileged process does.
    pub kill_priv: bool,
}

/// What a new entry is.
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

/// What goes to an MDT: a request, and what is said of locks with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// The client would keep what the answer says: the MDT grants locks with it where nobody is in
    /// the way. Their handles are this one and those that follow it, one for each inode in the
    /// answer.
    pub keep: Option<Cookie>,
    /// The client would keep what the MDT's data service has of the file, too: the handle of a lock
    /// there. With [`Request::Lookup`].
    pub beginning: Option<Cookie>,
    /// Locks that the client gives up; done before anything else.
    pub cancels: Vec<LockId>,
    /// Locks of which it keeps these bits; done next. Unknown ones, and those that have become less
    /// since, are fine.
    pub converts: Vec<(LockId, u64)>,
}

impl From<Request> for Call {
    fn from(request: Request) -> Call {
        Call { request, keep: None, beginning: None, cancels: Vec::new(), converts: Vec::new() }
    }
}

/// What an MDT answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// Locks that the client holds from now on, at most one for an inode.
    pub grants: Vec<Grant>,
    /// Inodes that are no more since this request: there is nothing to keep of them.
    pub gone: Vec<Fid>,
    /// The directory in which it made or removed an entry, as it is since: of [`Request::Create`],
    /// [`Request::OpenCreate`] and [`Request::Unlink`].
    pub dir: Option<Attr>,
    /// The inodes that it changed, in any part: of [`Request::Unlink`] and [`Request::Rename`].
    pub touched: Vec<Fid>,
    /// What the MDT's data service has of the file, where that is all there is of it and nobody was
    /// in the way.
    pub beginning: Option<Beginning>,
}

/// A lock (PR) on all of an object of the MDT's data service, and what the object is. Its bytes are
/// the answer's bulk, if they are not more than [`BEGINNING_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beginning {
    /// The lock.
    pub id: LockId,
    /// The object.
    pub object: Fid,
    /// Its size, space and times.
    pub attr: ObjectAttr,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { reply, grants: Vec::new(), gone: Vec::new(), dir: None, touched: Vec::new(), beginning: None }
    }
}

/// A request to an MDT.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named after the system call's")]
pub enum Request {
    /// A fresh sequence from which the client names files.
    AllocSeq,
    /// An entry of a directory, with attributes. `.` and `..` are understood.
    Lookup { cred: Cred, parent: Fid, name: Bytes },
    /// Attributes. `layout_known` leaves the layout out of the answer.
    GetAttr { fid: Fid, layout_known: bool },
    /// chmod, chown, utimensat, truncate. `handle`: the open file through which ftruncate came,
    /// which was checked at open.
    SetAttr { cred: Cred, fid: Fid, set: SetAttr, handle: Option<u64> },
    /// access(2): `mask` is R_OK 4, W_OK 2, X_OK 1.
    Access { cred: Cred, fid: Fid, mask: u32 },
    /// mkdir, mknod, symlink. `fid` is the client's choice from its sequence.
    Create { cred: Cred, parent: Fid, name: Bytes, fid: Fid, node: NewNode, mode: u32, umask: u32 },
    /// open of a known file.
    Open { cred: Cred, fid: Fid, flags: u32 },
    /// open(O_CREAT): looks up, creates if missing (as `fid`), opens.
    OpenCreate { cred: Cred, parent: Fid, name: Bytes, fid: Fid, flags: u32, mode: u32, umask: u32 },
    /// open(O_TMPFILE): a nameless file, gone at its last close unless linked before.
    TmpFile { cred: Cred, parent: Fid, fid: Fid, flags: u32, mode: u32, umask: u32 },
    /// Last closes of open files, some moments ago. At most [`CLOSED_MAX`]; handles that are not
    /// the client's are passed over.
    Close { files: Vec<Closed> },
    /// unlink (`dir` false) or rmdir (`dir` true).
    Unlink { cred: Cred, parent: Fid, name: Bytes, dir: bool },
    /// renameat2. `whiteout`: with [`rename::WHITEOUT`], and only with it, the whiteout's FID, the
    /// client's choice from its sequence; apart, for it is rare and requests are moved about.
    Rename {
        cred: Cred,
        parent: Fid,
        name: Bytes,
        new_parent: Fid,
        new_name: Bytes,
        flags: u32,
        whiteout: Option<Box<Fid>>,
    },
    /// A further name for a file.
    Link { cred: Cred, fid: Fid, parent: Fid, name: Bytes },
    /// The target of a symbolic link.
    ReadLink { fid: Fid },
    /// Entries after `cookie` (0: from the start), about `max_bytes` of them. Permission was
    /// checked at open. `attrs` asks for attributes and layouts too. `.` and `..` are not among
    /// them: the client adds them.
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
    /// Answers when everything that this MDT executed before is durable (with a FID: when that
    /// file's metadata is).
    Sync { fid: Option<Fid> },
    /// All paths of a file, from the root, without leading `/`: for fid2path. Superuser only, as in
    /// Lustre.
    Paths { cred: Cred, fid: Fid },
    /// The (parent, name) pairs of a file: for path2fid --parents.
    Parents { fid: Fid },
    /// The client's open files, so that what is unlinked stays alive for them: all of them after
    /// the MDT was restarted, else those that it opened by itself and of which it has to give up
    /// the lock. Each is (fid, open flags, the old handle); the answer is `Handles` in the same
    /// order.
    Reopen { files: Vec<(Fid, u32, u64)> },
    /// Gives locks up (those in [`Call::cancels`] and [`Call::converts`]). Unknown ones are fine.
    Cancel,
    /// fcntl(2) and flock(2): a lock of a program ([`crate::ldlm::Kind::Flock`]); `Nl` unlocks,
    /// `test` asks (F_GETLK). A lock that has to wait is answered `Waiting`; cancelling its id
    /// gives it up.
    Enqueue(Enqueue),
    /// Bytes `[start, end)` of a regular file are about to be written: every component of its
    /// layout that they touch gets its objects, if it has none, and extensions among them go to the
    /// components that they extend. The answer has the layout, changed or not. Permission was
    /// checked at open. ENODATA where the layout ends at `start` or before.
    ///
    /// Others give up LAYOUT before the answer comes; so whoever asks must let go of what would
    /// keep it from giving up its own, or two that ask at once wait for each other.
    LayoutIntent { fid: Fid, start: u64, end: u64 },
    /// The file leaves its objects for those of `from`, a nameless file of the caller's, to which
    /// its bytes were copied (`lfs migrate`). `versions`: its objects, all of them, and the data
    /// version of each as of before the copy; of a mirrored file also its own FID with the
    /// generation of its layout. `group`, as in [`crate::ost::Request::Close`]; `mtime`: when the
    /// file was last changed. EBUSY, and nothing is done: somebody has written to it since, or is
    /// at it, or uses a group lock.
    ///
    /// Answered when it is durable, and others have given up LAYOUT. Who comes with the old layout
    /// hears `Errno::MOVED` of the OSTs.
    TakeLayout { cred: Cred, fid: Fid, from: Fid, versions: Vec<(Fid, u64)>, group: Option<u64>, mtime: Time },
    /// Of the objects of the file's layout of this generation an OST has closed one. Answered with
    /// the layout that the file has when nobody is at it any more; should it be this one, its
    /// objects are open again.
    LayoutMoved { fid: Fid, generation: u32 },
    /// Two regular files exchange their objects: each has the other's bytes, size and striping, and
    /// stays else what it was (Lustre's swap_layouts). `mtimes`: when each was last changed.
    /// `nonce`: drawn for this exchange, so that a request which comes again after a restart does
    /// not exchange them back.
    ///
    /// EPERM: they do not belong to the same user and group. EBUSY: somebody does not let go of
    /// one, or gives it objects, or one is mirrored and somebody has one open beside the caller;
    /// nothing is done. Answered as `TakeLayout`.
    SwapLayouts { cred: Cred, fids: [Fid; 2], mtimes: [Time; 2], nonce: u64 },
}

/// A file that a client has closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Closed {
    /// Which.
    pub fid: Fid,
    /// The MDT's handle of it, or [`NO_HANDLE`]: the client had opened it by itself.
    pub handle: u64,
    /// If it was read: how many microseconds ago it was closed, for the access time.
    pub read: Option<u32>,
}

/// A file's attributes and, for a regular file that has one, its layout in Lustre's binary form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Attributes as the MDT knows them.
    pub attr: Attr,
    /// `lustre.lov` bytes.
    pub layout: Option<Bytes>,
    /// Whether it may have extended attributes of its own, or an access control list; not counted
    /// is what is made up (`lustre.lov`).
    pub xattrs: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirEntry {
    /// Name.
    pub name: Bytes,
    /// Which file.
    pub fid: Fid,
    /// Its type.
    pub kind: FileKind,
    /// Where to go on after this entry: stable for as long as the entry exists, above 2, below
    /// 2^63.
    pub cookie: u64,
    /// Attributes where asked for.
    pub entry: Option<Entry>,
}

/// A successful answer of an MDT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Ok,
    /// To `AllocSeq`.
    Seq(u64),
    /// To `Lookup`, `GetAttr`, `SetAttr`, `Create`, `Link`, `LayoutIntent`, `LayoutMoved`.
    Entry(Entry),
    /// To `Open`, `OpenCreate`, `TmpFile`.
    Opened {
        /// Names the open file in `Close` and `SetAttr`; unique in this MDT's life, and never
        /// [`NO_HANDLE`].
        handle: u64,
        /// Attributes after the open.
        entry: Entry,
        /// Whether this request created the file.
        created: bool,
    },
    /// To `ReadLink` and `GetXattr`.
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
    /// To `Close`: those that were read and have a name still, in the same order.
    Attrs(Vec<Attr>),
}

impl Request {
    /// Gives one open file back, of which nothing was read.
    pub fn close(fid: Fid, handle: u64) -> Request {
        Request::Close { files: vec![Closed { fid, handle, read: None }] }
    }

    /// Whether it takes names away, so that only the answer knows for certain what was behind them
    /// ([`Answer::touched`]).
    pub fn takes_names(&self) -> bool {
        matches!(self, Request::Unlink { .. } | Request::Rename { .. })
    }

    /// Whether the request changes something that a second execution would change again or refuse.
    pub fn modifies(&self) -> bool {
        use Request::*;
        !matches!(
            self,
            Lookup { .. }
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
        )
    }

    /// Name for statistics, after Lustre's `md_stats` and `mdt.*.md_stats`.
    pub fn op(&self) -> &'static str {
        use Request::*;
        match self {
            AllocSeq => "alloc_seq",
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
        }
    }
}
