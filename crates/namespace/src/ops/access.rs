//! access(2): whether read (4), write (2), execute or search (1) permission would be granted. Mask
//! 0 asks for existence alone.
//!
//! EACCES if any of them is not granted; EINVAL for other bits. The superuser may execute only a
//! file with an execute bit.

use rustc_hash::FxHashMap;
use sheen_wire::{self as wire, Cred, Errno, Fid, fid::ROOT, mds::Reply, nodemap::Nodemap};

use crate::{
    ClientId, Namespace, Store,
    access::{self, EXEC, READ, WRITE},
    interface::Permitted,
    record::Inode,
};

/// Directories above a file that are checked at most. Paths of PATH_MAX have 2048.
const DEPTH_MAX: usize = 4096;

/// The part of the tree that a client may use, as its caller sees it.
///
/// It remembers the directories that one request has asked for, so that each is read once.
pub struct Reach<'a> {
    /// The caller that searches directories. `None`: a client that is trusted to check this itself.
    cred: Option<&'a Cred>,
    /// The directory to which the client is confined, or [`ROOT`].
    top: Fid,
    /// Whether a path leads from the top to a directory.
    known: FxHashMap<Fid, bool>,
}

impl<'a> Reach<'a> {
    /// Creates that of a caller (`None`: all of a trusted client) below a directory.
    pub fn new(cred: Option<&'a Cred>, top: Fid) -> Reach<'a> {
        Reach { cred, top, known: FxHashMap::default() }
    }
}

impl<S: Store> Namespace<S> {
    /// Checks that the caller may make a change that a parameter of the MDT permits to some users.
    /// A replayed change was permitted before.
    pub(crate) fn check_permitted(&self, users: Permitted, cred: &Cred) -> wire::Result<()> {
        if self.replaying.is_some() || users.has(cred)? { Ok(()) } else { Err(Errno::EPERM) }
    }

    pub(crate) fn access(&mut self, cred: &Cred, fid: Fid, mask: u32) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        if mask & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        access::check(&inode, cred, mask)?;
        Ok(Reply::Ok)
    }

    /// Returns whether a client can reach a file: by a path from the top whose directories the
    /// caller may search, or because the client has it open. An owner reaches each own file below
    /// the top. So does everybody a file that does not exist: the operation returns the error.
    ///
    /// Of a file with more names than are stored with it, one of the others may lead to it. So it
    /// is reached, too, unless the client is confined to a directory.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn reaches(&mut self, client: ClientId, fid: Fid, reach: &mut Reach<'_>) -> wire::Result<bool> {
        let Some(inode) = self.tables.inode(fid)? else { return Ok(true) };
        let is_all = reach.cred.is_none() && reach.top == ROOT;
        if is_all || fid == reach.top || self.handles.is_open_by(fid, |of| of == client) {
            return Ok(true);
        }
        if reach.cred.is_some_and(|cred| access::is_owner(cred, &inode)) {
            let mut owner = Reach::new(None, reach.top);
            return Ok(reach.top == ROOT || self.leads_to(&inode, &mut owner)?);
        }
        if reach.top == ROOT && !inode.is_dir() && inode.links.len() < inode.nlink as usize {
            return Ok(true);
        }
        self.leads_to(&inode, reach)
    }

    /// Returns whether one of a file's stored names can be reached.
    fn leads_to(&mut self, inode: &Inode, reach: &mut Reach<'_>) -> wire::Result<bool> {
        for link in inode.links.iter() {
            if self.searches_to(link.parent, reach)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a directory and all above it, up to the top, may be searched.
    fn searches_to(&mut self, dir: Fid, reach: &mut Reach<'_>) -> wire::Result<bool> {
        let (mut at, mut passed) = (dir, Vec::new());
        let verdict = loop {
            if let Some(known) = reach.known.get(&at) {
                break *known;
            }
            passed.push(at);
            let Some(inode) = self.tables.inode(at)? else { break false };
            let may_search = reach.cred.is_none_or(|cred| access::check(&inode, cred, EXEC).is_ok());
            if passed.len() > DEPTH_MAX || !may_search {
                break false;
            }
            if at == reach.top {
                break true;
            }
            // The root has no name, so a walk that misses the top ends there.
            let Some(above) = inode.links.first() else { break false };
            at = above.parent;
        };
        reach.known.extend(passed.into_iter().map(|dir| (dir, verdict)));
        Ok(verdict)
    }

    /// Returns the directory at a path from another one. Symbolic links are not followed. `cred`:
    /// the caller, if it needs the right to search the directories.
    ///
    /// # Errors
    /// ENOENT: there is none. ENOTDIR: it is no directory. EACCES: the caller may not search one.
    /// EIO: it cannot be read.
    pub fn dir_at(&mut self, top: Fid, path: &str, cred: Option<&Cred>) -> wire::Result<Fid> {
        let mut at = top;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let dir = self.dir(at)?;
            cred.map_or(Ok(()), |cred| access::check(&dir, cred, EXEC))?;
            at = self.find(at, name.as_bytes())?.ok_or(Errno::ENOENT)?.fid;
        }
        self.dir(at)?;
        Ok(at)
    }

    /// Returns the largest rights that any user of a client in a nodemap has, as
    /// [`Namespace::rights`] of one.
    ///
    /// # Errors
    /// As [`Namespace::rights`].
    pub fn rights_of_all(&mut self, client: ClientId, nodemap: &Nodemap, fid: Fid) -> wire::Result<u32> {
        let inode = self.tables.inode(fid)?.ok_or(Errno::ENOENT)?;
        if nodemap.may_be(0) || nodemap.may_be(inode.uid) {
            return Ok(READ | WRITE | EXEC);
        }
        let bits = access::of_all(&inode, nodemap);
        let reads = if !inode.is_dir() && bits & EXEC != 0 { READ } else { 0 };
        Ok(bits | reads | self.handles.rights(client, fid))
    }

    /// Whether there is a file of this FID.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn exists(&mut self, fid: Fid) -> wire::Result<bool> {
        Ok(self.tables.inode(fid)?.is_some())
    }

    /// Whether there is a file of this FID, and it has a name.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn has_name(&mut self, fid: Fid) -> wire::Result<bool> {
        Ok(self.tables.inode(fid)?.is_some_and(|inode| inode.nlink > 0))
    }

    /// Returns whether a caller on this client may read and write a file, and search a directory:
    /// bits of [`READ`], [`WRITE`] and [`EXEC`]. An owner may all, an executable file is read to be
    /// run, and an open file gives what its flags say.
    ///
    /// # Errors
    /// ENOENT: it is deleted. EIO: it cannot be read.
    pub fn rights(&mut self, client: ClientId, cred: &Cred, fid: Fid) -> wire::Result<u32> {
        let inode = self.tables.inode(fid)?.ok_or(Errno::ENOENT)?;
        if access::is_owner(cred, &inode) {
            return Ok(READ | WRITE | EXEC);
        }
        let may = |mask| access::check(&inode, cred, mask).is_ok();
        let runs = !inode.is_dir() && may(EXEC);
        let right = |granted, mask| if granted { mask } else { 0 };
        let by_mode = right(may(READ) || runs, READ) | right(may(WRITE), WRITE) | right(may(EXEC), EXEC);
        let is_all = by_mode & (READ | WRITE) == READ | WRITE;
        Ok(if is_all { by_mode } else { by_mode | self.handles.rights(client, fid) })
    }
}
