//! The interface between the caller and an operation: services, results, the context.

use bytes::Bytes;
use sheen_layout::{Asked, Component, Wanted, WantedLayout};
use sheen_wire::{self as wire, Cred, Fid, JobId, StatFs, Time, mds::Reply};

use crate::{
    ClientId, HeldOrphan,
    access::{in_group, is_root},
};

/// The users, besides the superuser, who may do something to their own files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permitted {
    /// No other user.
    Nobody,
    /// The members of a group.
    Group(u32),
    /// All users.
    Everybody,
}

impl Permitted {
    /// Returns the meaning of one of Lustre's parameters `enable_*_gid`: -1 stands for all users, 0
    /// for none, and another number for a group. A number that is no group id stands for none.
    pub fn from_gid(gid: i64) -> Permitted {
        match (gid, u32::try_from(gid)) {
            (-1, _) => Permitted::Everybody,
            (0, _) | (_, Err(_)) => Permitted::Nobody,
            (_, Ok(gid)) => Permitted::Group(gid),
        }
    }

    /// Whether the caller is the superuser or one of these users.
    ///
    /// # Errors
    /// [`sheen_wire::Errno::NEED_GROUPS`]: the groups of the caller decide it.
    pub(crate) fn has(self, cred: &Cred) -> wire::Result<bool> {
        match self {
            _ if is_root(cred) => Ok(true),
            Permitted::Nobody => Ok(false),
            Permitted::Group(gid) => in_group(cred, gid),
            Permitted::Everybody => Ok(true),
        }
    }
}

/// Requested parameters of a new layout. The fields are resolved in this order
/// (`sheen_layout::resolve_asked`), then the file system's defaults apply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayoutRequest {
    /// Parameters set on the file itself; empty if there are none.
    pub own: Asked,
    /// Default layout of the parent directory.
    pub dir: Option<Asked>,
    /// Default layout of the root directory.
    pub root: Option<Asked>,
}

/// Services that the caller provides to an operation.
pub trait Env {
    /// Returns the real time.
    fn now(&self) -> Time;
    /// Checks parameters that a user requested. EINVAL if an OST or pool does not exist, EOPNOTSUPP
    /// if the MDT cannot hold data.
    fn check(&mut self, asked: &Asked) -> wire::Result<()>;
    /// Fills in the parameters that `request` leaves open. The user's own parameters were checked
    /// before ([`Env::check`]).
    fn resolve(&mut self, request: &LayoutRequest) -> wire::Result<WantedLayout>;
    /// Chooses the OST for each stripe of a component (or of a plain layout) among the OSTs that
    /// are active and have space now. For its errors (ENOSPC, EINVAL and so on) see
    /// `sheen_layout::LayoutError::errno`. Called before the operation changes anything; the
    /// operation may still fail afterwards.
    fn place(&mut self, wanted: &Wanted) -> wire::Result<Vec<u32>>;
    /// Whether the OSTs of a component have room for that many more bytes. For a component without
    /// objects: the OSTs on which it could be placed.
    fn has_room(&self, _component: &Component, _bytes: u64) -> bool {
        true
    }
    /// Reports that a component with objects took that many bytes from its extension component.
    /// They will be written.
    fn extended(&mut self, _component: &Component, _bytes: u64) {}
    /// Whether the disk of the MDT is short of space. Its reserve is for changes then.
    fn is_short(&self) -> bool {
        false
    }
    /// Whether an OST is connected.
    fn is_up(&self, _ost: u32) -> bool {
        true
    }
    /// Returns the locks that clients hold on the file, as [`sheen_wire::ldlm::bits`].
    fn locks(&self, _fid: Fid) -> Vec<(ClientId, u64)> {
        Vec::new()
    }
    /// Returns the users who may change the projects of their own files.
    fn project_changers(&self) -> Permitted {
        Permitted::Nobody
    }
    /// Returns the users who may request layouts and defaults of their own directories.
    fn directory_stripers(&self) -> Permitted {
        Permitted::Nobody
    }
    /// Returns the reply to `StatFs`, given the number of inodes in use.
    fn statfs(&self, files: u64) -> StatFs;
    /// Whether clients may have opened the file locally, without a handle of the MDT: a client
    /// holds a lock on [`sheen_wire::ldlm::bits::OPEN`].
    fn may_be_open(&self, _fid: Fid) -> bool {
        false
    }
    /// Returns the NID of the client, as text, for the changelog.
    fn nid(&self) -> Bytes {
        Bytes::new()
    }
    /// Returns the job that caused the request, for the changelog.
    fn job(&self) -> JobId {
        JobId::NONE
    }
}

/// Result of an executed request.
#[derive(Clone, Debug)]
pub struct Done {
    /// Reply to the client.
    pub reply: Reply,
    /// Transaction number, rising. 0 if nothing changed that a crash could lose.
    pub transno: u64,
    /// Time of the changes.
    pub time: Time,
    /// Invalidations: per changed inode, once, the [`sheen_wire::ldlm::bits`] that other clients
    /// may no longer cache. Module `invalidations` defines them.
    pub invalidations: Vec<(Fid, u64)>,
    /// The file whose last name the operation removed, if clients may have it open without the
    /// MDT's knowledge.
    pub orphan: Option<HeldOrphan>,
    /// The request was executed before, and not again. If `transno` is not yet durable, the reply
    /// waits until it is (module `executed`).
    pub repeated: bool,
}

/// Objects to be destroyed on their OSTs: those of a deleted file, or those removed from a file's
/// layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destroy {
    /// Number in the unlink log, rising.
    pub seqno: u64,
    /// The file that the objects belonged to.
    pub file: Fid,
    /// (OST index, object).
    pub objects: Vec<(u32, Fid)>,
}

/// Context of one request.
pub(crate) struct Cx<'a> {
    pub client: ClientId,
    /// Timestamp for all changes of this request.
    pub now: Time,
    pub env: &'a mut dyn Env,
}
