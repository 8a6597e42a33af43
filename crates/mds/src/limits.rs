//! The limits of a client: those of its key's role, and those of its nodemap.
//!
//! Invariants:
//! * A client with a key of the cluster itself has none.
//! * A client with a user's key acts as that user only. A nodemap does not map its ids.
//! * A host may act as all users that its nodemap does not squash. So requests without credentials
//!   have the rights that any of them has ([`sheen_namespace::Namespace::rights_of_all`]), and the
//!   host itself checks that its users may search the path of a file.
//! * A client with a fileset reaches nothing outside of that directory, neither by a FID nor by a
//!   path.

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_namespace::{ClientId, READ, Reach, WRITE, map_acl_ids};
use sheen_rpc::Export;
use sheen_wire::auth::{Role, User};
use sheen_wire::mds::{Answer, Closed, Opener, Reply, Request, SetAttr, flags, xattr};
use sheen_wire::mirror::{self, MirrorChange};
use sheen_wire::nodemap::{Nodemap, Nodemaps, Rules};
use sheen_wire::{Cred, Errno, Fid, Result, fid::ROOT, quota};
use tracing::warn;

use crate::mdt::Mdt;
use crate::state::core::Core;

/// Longest path of a directory that is mounted, in bytes, as Linux's PATH_MAX.
const PATH_MAX: usize = 4096;
/// Names of the attributes with access control lists.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Name of the attribute with all names of a file, also those outside of a fileset.
const LINKS: &[u8] = b"trusted.link";
/// Name of the attribute with a file's layout.
const LAYOUT: &[u8] = b"lustre.lov";

/// The limits of a client.
pub(crate) struct Limits<'a> {
    who: Who<'a>,
    nodemap: Option<&'a Nodemap>,
    /// The directory to which the client is confined.
    top: Fid,
}

/// The users that a client may be.
enum Who<'a> {
    /// This one, with the credentials for requests that have none.
    User(&'a User, Cred),
    /// Those that this nodemap does not squash.
    Host(&'a Nodemap),
}

/// Returns the limits of a client without its fileset. `None`: it has none.
///
/// # Errors
/// EACCES: its key names a nodemap that does not exist.
pub(crate) fn limits_of_users<'a>(nodemaps: &'a Nodemaps, export: &'a Export) -> Result<Option<Limits<'a>>> {
    let role = export.role();
    if *role == Role::Server {
        return Ok(None);
    }
    let nodemap = match nodemaps.of(role.nodemap(), export.nid().ip()) {
        Rules::None => None,
        Rules::Of(nodemap) => Some(nodemap),
        Rules::Unknown => return Err(Errno::EACCES),
    };
    let who = match (role, nodemap) {
        (Role::User(user), _) => {
            let mut cred = Cred { uid: user.uid, gid: user.gid, groups: None };
            user.confine(&mut cred);
            Who::User(user, cred)
        }
        (_, Some(nodemap)) if !nodemap.is_free() => Who::Host(nodemap),
        _ => return Ok(None),
    };
    Ok(Some(Limits { who, nodemap, top: ROOT }))
}

impl Mdt {
    /// Returns the limits of a client. `None`: it has none.
    ///
    /// # Errors
    /// EACCES: its key names a nodemap that does not exist, or its fileset does not exist.
    pub(crate) fn limits<'a>(&self, nodemaps: &'a Nodemaps, export: &'a Export) -> Result<Option<Limits<'a>>> {
        let Some(mut limits) = limits_of_users(nodemaps, export)? else { return Ok(None) };
        let fileset = limits.nodemap.map_or("", |nodemap| &nodemap.fileset);
        if !fileset.is_empty() {
            limits.top = self.core.lock().ns.dir_at(ROOT, fileset, None).map_err(|_| Errno::EACCES)?;
        }
        Ok(Some(limits))
    }

    /// Whether the MDT must know all files that a client has open. It does not know as which user a
    /// host opens a file by itself. An open file remains usable outside of the fileset.
    pub(crate) fn sees_all_opens(&self, export: &Export) -> bool {
        let role = export.role();
        if *role == Role::Server {
            return false;
        }
        match self.nodemaps.get().of(role.nodemap(), export.nid().ip()) {
            Rules::None => false,
            Rules::Of(nodemap) => {
                !nodemap.fileset.is_empty() || matches!(role, Role::Host(_)) && nodemap.changes_users()
            }
            Rules::Unknown => true,
        }
    }

    /// Returns the directory that a client mounts: the one at `path` from its top.
    ///
    /// # Errors
    /// EACCES: the client's user cannot reach it. EPERM: as EACCES of [`Mdt::limits`]. ENOENT,
    /// ENOTDIR: there is no such directory. ENAMETOOLONG: the path is too long.
    pub(crate) fn root_of(&self, export: &Export, path: &str) -> Result<Reply> {
        if path.len() > PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let nodemaps = self.nodemaps.get();
        let limits = self.limits(&nodemaps, export).map_err(|_| {
            warn!(
                "{}: {} ({}) cannot mount: the nodemap in its key does not exist, or the fileset of its nodemap is no \
                 directory; `lctl nodemap_info all`, where the MGS runs, shows them",
                self.name,
                export.nid(),
                export.role()
            );
            Errno::EPERM
        })?;
        let mut core = self.core.lock();
        let top = limits.as_ref().map_or(ROOT, |limits| limits.top);
        let fid = core.ns.dir_at(top, path, limits.as_ref().and_then(Limits::cred))?;
        if let Some(limits) = &limits
            && !core.ns.reaches(ClientId(export.id()), fid, &mut limits.reach())?
        {
            return Err(Errno::EACCES);
        }
        Ok(Reply::Root { fid, read_only: limits.is_some_and(|limits| limits.read_only()) })
    }
}

impl Limits<'_> {
    /// Returns the user, if the client acts as one only.
    pub fn user(&self) -> Option<&User> {
        if let Who::User(user, _) = &self.who { Some(user) } else { None }
    }

    /// Whether the client may change nothing.
    pub fn read_only(&self) -> bool {
        self.nodemap.is_some_and(|nodemap| nodemap.read_only)
    }

    /// Returns the credentials of the only user, if there is one.
    fn cred(&self) -> Option<&Cred> {
        if let Who::User(_, cred) = &self.who { Some(cred) } else { None }
    }

    /// Returns the part of the tree that the client may use.
    pub fn reach(&self) -> Reach<'_> {
        Reach::new(self.cred(), self.top)
    }

    /// Returns the client's rights on a file: none if it cannot reach it.
    ///
    /// # Errors
    /// ENOENT: the file is deleted. EIO: it cannot be read.
    pub fn rights(&self, core: &mut Core, export: &Export, fid: Fid, reach: &mut Reach<'_>) -> Result<u32> {
        let rights = self.rights_to_reopen(core, export, fid, reach)?;
        Ok(if self.read_only() { rights & !WRITE } else { rights })
    }

    /// Returns the client's rights on a file that it may have open. An open file remains usable if
    /// the client may change nothing any more; its objects are refused.
    ///
    /// # Errors
    /// As [`Limits::rights`].
    pub fn rights_to_reopen(&self, core: &mut Core, export: &Export, fid: Fid, reach: &mut Reach<'_>) -> Result<u32> {
        let client = ClientId(export.id());
        let rights = match &self.who {
            Who::User(_, cred) => core.ns.rights(client, cred, fid)?,
            Who::Host(nodemap) => core.ns.rights_of_all(client, nodemap, fid)?,
        };
        Ok(if core.ns.reaches(client, fid, reach)? { rights } else { 0 })
    }

    /// Whether a request is the work of a host's mount itself: it gives a file its first layout, or
    /// gives objects to a mirror. The mount has checked that its user may write the file. So the
    /// request is executed with the rights of the superuser.
    pub fn is_own_work(&self, core: &mut Core, export: &Export, request: &Request) -> bool {
        let Request::SetXattr { fid, .. } = request else { return false };
        let mut may_write = || self.rights(core, export, *fid, &mut self.reach()).is_ok_and(|r| r & WRITE != 0);
        self.may_be_own_work(request) && may_write() && core.ns.is_file(*fid)
    }

    /// Whether a request has the form of the work of a host's mount itself.
    pub fn may_be_own_work(&self, request: &Request) -> bool {
        let Request::SetXattr { cred, name, value, flags, .. } = request else { return false };
        let is_first = name == LAYOUT && *flags == xattr::CREATE;
        let gives = || matches!(MirrorChange::decode(value), Ok(MirrorChange::Objects { .. }));
        let is_own = is_first || name == mirror::XATTR && gives();
        is_own && *cred == Cred::ROOT && matches!(self.who, Who::Host(_))
    }

    /// Makes the ids in a request those of the file system.
    ///
    /// # Errors
    /// EACCES: unknown users are refused. EINVAL: a file cannot have this owner, because it is not
    /// known.
    pub fn map(&self, request: &mut Request, own_work: bool) -> Result<()> {
        if let Some(cred) = request.cred_mut().filter(|_| !own_work) {
            match &self.who {
                Who::User(user, _) => user.confine(cred),
                Who::Host(nodemap) => nodemap.map(cred)?,
            }
        }
        match request {
            Request::LayoutIntent { opener, .. } => self.map_opener(opener),
            Request::Reopen { files, .. } => files.iter_mut().for_each(|file| self.map_opener(&mut file.opener)),
            _ => {}
        }
        let Who::Host(nodemap) = &self.who else { return Ok(()) };
        let known = |id: Option<u32>| id.ok_or(Errno::EINVAL);
        match request {
            Request::SetAttr { set: SetAttr { uid, gid, .. }, .. } => {
                *uid = uid.map(|uid| known(nodemap.uid_of(uid))).transpose()?;
                *gid = gid.map(|gid| known(nodemap.gid_of(gid))).transpose()?;
            }
            Request::SetXattr { name, value, .. } if ACLS.contains(&&name[..]) => {
                *value = map_acl_ids(value, |uid| nodemap.uid_of(uid), |gid| nodemap.gid_of(gid))?.into();
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes the user who opened a file one of the file system. Refuses nothing, because the user
    /// is for the changelog alone.
    pub fn map_opener(&self, opener: &mut Opener) {
        let mut cred = opener.cred();
        let mapped = match &self.who {
            Who::User(user, _) => {
                user.confine(&mut cred);
                Ok(())
            }
            Who::Host(nodemap) => nodemap.map(&mut cred),
        };
        *opener = mapped.map_or(Opener::UNKNOWN, |()| Opener::of(&cred));
    }

    /// Refuses a change by a client that may change nothing.
    ///
    /// # Errors
    /// EROFS.
    pub fn check_change(&self, request: &mut Request) -> Result<()> {
        if !self.read_only() {
            return Ok(());
        }
        match request {
            Request::Open { flags, .. } if !flags::writes(*flags) && *flags & flags::TRUNC == 0 => Ok(()),
            Request::Close { files } => {
                files.iter_mut().for_each(|Closed { read, .. }| *read = None);
                Ok(())
            }
            Request::AllocSeq | Request::Reopen { .. } => Ok(()),
            request if request.modifies() => Err(Errno::EROFS),
            _ => Ok(()),
        }
    }

    /// Makes the ids in an answer those of the client, and removes names that it may not see.
    pub fn show(&self, core: &Mutex<Core>, export: &Export, request: &Request, answer: &mut Answer) {
        if let Who::Host(nodemap) = &self.who
            && nodemap.maps_ids()
        {
            answer.attrs_mut(&mut |attr| {
                (attr.uid, attr.gid) = (nodemap.uid_for_client(attr.uid), nodemap.gid_for_client(attr.gid));
            });
            if let (Request::GetXattr { name, .. }, Reply::Bytes(value)) = (request, &mut answer.reply)
                && ACLS.contains(&&name[..])
            {
                let (uid, gid) = (|uid| Some(nodemap.uid_for_client(uid)), |gid| Some(nodemap.gid_for_client(gid)));
                *value = map_acl_ids(value, uid, gid).map_or_else(|_| value.clone(), Bytes::from);
            }
        }
        match &mut answer.reply {
            Reply::Parents(parents) => {
                let (mut core, mut reach) = (core.lock(), self.reach());
                parents.retain(|(parent, _)| {
                    let rights = self.rights(&mut core, export, *parent, &mut reach);
                    rights.is_ok_and(|rights| rights & READ != 0)
                });
            }
            Reply::Paths(paths) => *paths = paths.iter().filter_map(|path| self.below_top(path)).collect(),
            _ => {}
        }
    }

    /// Returns a path from the client's top on. `None`: it does not lead through the top.
    fn below_top(&self, path: &Bytes) -> Option<Bytes> {
        let fileset = self.nodemap.map_or("", |nodemap| nodemap.fileset.trim_start_matches('/'));
        if fileset.is_empty() {
            return Some(path.clone());
        }
        match path.strip_prefix(fileset.as_bytes())? {
            [] => Some(Bytes::new()),
            [b'/', rest @ ..] => Some(path.slice_ref(rest)),
            _ => None,
        }
    }

    /// Whether the client may see or change an extended attribute.
    ///
    /// # Errors
    /// ENODATA: it has names outside of the fileset. EPERM: it is of quotas, and names ids that are
    /// others for the client, or would change them.
    pub fn check_xattr(&self, request: &Request) -> Result<()> {
        let is_quota = |name: &Bytes| name == quota::XATTR || name.starts_with(quota::QUERY_PREFIX.as_bytes());
        match request {
            Request::GetXattr { name, .. } if self.top != ROOT && name == LINKS => Err(Errno::ENODATA),
            Request::GetXattr { name, .. } if is_quota(name) && self.has_other_ids() => Err(Errno::EPERM),
            Request::SetXattr { name, .. } | Request::RemoveXattr { name, .. } if is_quota(name) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Whether ids are others for the client than for the file system.
    fn has_other_ids(&self) -> bool {
        matches!(self.who, Who::Host(nodemap) if nodemap.maps_ids())
    }
}
