//! fid2path: the paths of a file from the root; path2fid --parents: its (parent, name) pairs.
//!
//! * Only the superuser gets paths (EPERM): they contain directories that others may not search.
//!   The root's path is empty.
//! * ENOENT if the file is deleted; a file without a name has no path.
//! * Of a file with very many hard links only the first names are stored
//!   ([`crate::record::LINKS_BYTES_MAX`]).
//! * EOVERFLOW for a path longer than 4096 bytes, as in Lustre.

use bytes::Bytes;
use sheen_wire::{self as wire, Cred, Errno, Fid, fid, mds::Reply};

use crate::{Namespace, Store, access::is_root, record::Link};

/// Linux's PATH_MAX, in bytes.
const PATH_MAX: usize = 4096;

impl<S: Store> Namespace<S> {
    pub(crate) fn paths(&mut self, cred: &Cred, fid: Fid) -> wire::Result<Reply> {
        if !is_root(cred) {
            return Err(Errno::EPERM);
        }
        let inode = self.live(fid)?;
        if fid == fid::ROOT {
            return Ok(Reply::Paths(vec![Bytes::new()]));
        }
        let paths: wire::Result<_> = inode.links.iter().map(|link| self.path(link)).collect();
        Ok(Reply::Paths(paths?))
    }

    fn path(&mut self, link: &Link) -> wire::Result<Bytes> {
        let (mut names, mut parent, mut len) = (vec![link.name.clone()], link.parent, link.name.len());
        while parent != fid::ROOT {
            let inode = self.live(parent)?;
            let link = inode.links.first().ok_or(Errno::ENOENT)?;
            len += 1 + link.name.len();
            if len > PATH_MAX {
                return Err(Errno::EOVERFLOW);
            }
            names.push(link.name.clone());
            parent = link.parent;
        }
        names.reverse();
        Ok(names.join(&b"/"[..]).into())
    }

    pub(crate) fn parents(&mut self, fid: Fid) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        Ok(Reply::Parents(inode.links.iter().map(|l| (l.parent, l.name.to_bytes())).collect()))
    }
}
