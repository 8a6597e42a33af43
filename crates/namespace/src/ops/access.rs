//! access(2): whether read (4), write (2), execute or search (1) permission would be granted. Mask
//! 0 asks for existence alone.
//!
//! EACCES if any of them is not granted; EINVAL for other bits. The superuser may execute only a
//! file with an execute bit.

use sheen_wire::{self as wire, Cred, Errno, Fid, fid::ROOT, mds::Reply};

use crate::{
    ClientId, Namespace, Store,
    access::{self, EXEC, READ, WRITE},
};

/// Directories above a file that are checked at most. Paths of PATH_MAX have 2048.
const DEPTH_MAX: u32 = 4096;

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
    /// caller may search, or because the client has it open. An owner reaches a file without a
    /// name. So does everybody a file that does not exist: the operation returns the error.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn reaches(&mut self, client: ClientId, cred: &Cred, fid: Fid) -> wire::Result<bool> {
        let Some(inode) = self.tables.inode(fid)? else { return Ok(true) };
        if fid == ROOT || self.handles.is_open_by(fid, |of| of == client) {
            return Ok(true);
        }
        if inode.links.is_empty() {
            return Ok(access::is_owner(cred, &inode));
        }
        for link in inode.links.iter() {
            let (mut dir, mut depth) = (link.parent, 0);
            loop {
                let Some(inode) = self.tables.inode(dir)? else { break };
                depth += 1;
                if depth > DEPTH_MAX || access::check(&inode, cred, EXEC).is_err() {
                    break;
                }
                if dir == ROOT {
                    return Ok(true);
                }
                let Some(above) = inode.links.first() else { break };
                dir = above.parent;
            }
        }
        Ok(false)
    }

    /// Returns whether a caller on this client may read and write a file: bits of [`READ`] and
    /// [`WRITE`]. An owner may both, an executable file is read to be run, and an open file gives
    /// what its flags say.
    ///
    /// # Errors
    /// ENOENT: it is deleted. EIO: it cannot be read.
    pub fn rights(&mut self, client: ClientId, cred: &Cred, fid: Fid) -> wire::Result<u32> {
        let inode = self.tables.inode(fid)?.ok_or(Errno::ENOENT)?;
        if access::is_owner(cred, &inode) {
            return Ok(READ | WRITE);
        }
        let may = |mask| access::check(&inode, cred, mask).is_ok();
        let runs = !inode.is_dir() && may(EXEC);
        let by_mode = if may(READ) || runs { READ } else { 0 } | if may(WRITE) { WRITE } else { 0 };
        Ok(if by_mode == READ | WRITE { by_mode } else { by_mode | self.handles.rights(client, fid) })
    }
}
