//! access(2): whether read (4), write (2), execute or search (1) permission would be granted. Mask
//! 0 asks for existence alone.
//!
//! EACCES if any of them is not granted; EINVAL for other bits. The superuser may execute only a
//! file with an execute bit.

use rustc_hash::FxHashMap;
use sheen_wire::{self as wire, Cred, Errno, Fid, fid::ROOT, mds::Reply};

use crate::{
    ClientId, Namespace, Store,
    access::{self, EXEC, READ, WRITE},
};

/// Directories above a file that are checked at most. Paths of PATH_MAX have 2048.
const DEPTH_MAX: usize = 4096;

/// The directories to which a caller can search, as far as one request has asked. So each is read
/// once.
#[derive(Default)]
pub struct Paths(FxHashMap<Fid, bool>);

impl<S: Store> Namespace<S> {
    pub(crate) fn access(&mut self, cred: &Cred, fid: Fid, mask: u32) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        if mask & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        access::check(&inode, cred, mask)?;
        Ok(Reply::Ok)
    }

    /// Returns whether a caller on this client can reach a file: by a path whose directories the
    /// caller may search, or because the client has it open. An owner reaches each own file. So
    /// does everybody a file that does not exist: the operation returns the error.
    ///
    /// A file with more names than are stored with it is reached, too: one of the others may lead
    /// to it.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn reaches(&mut self, client: ClientId, cred: &Cred, fid: Fid, paths: &mut Paths) -> wire::Result<bool> {
        let Some(inode) = self.tables.inode(fid)? else { return Ok(true) };
        if fid == ROOT || access::is_owner(cred, &inode) || self.handles.is_open_by(fid, |of| of == client) {
            return Ok(true);
        }
        if !inode.is_dir() && inode.links.len() < inode.nlink as usize {
            return Ok(true);
        }
        for link in inode.links.iter() {
            if self.searches_to(cred, link.parent, paths)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a caller may search a directory and all above it.
    fn searches_to(&mut self, cred: &Cred, dir: Fid, paths: &mut Paths) -> wire::Result<bool> {
        let (mut at, mut passed) = (dir, Vec::new());
        let verdict = loop {
            if let Some(known) = paths.0.get(&at) {
                break *known;
            }
            passed.push(at);
            let Some(inode) = self.tables.inode(at)? else { break false };
            if passed.len() > DEPTH_MAX || access::check(&inode, cred, EXEC).is_err() {
                break false;
            }
            if at == ROOT {
                break true;
            }
            let Some(above) = inode.links.first() else { break false };
            at = above.parent;
        };
        paths.0.extend(passed.into_iter().map(|dir| (dir, verdict)));
        Ok(verdict)
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
