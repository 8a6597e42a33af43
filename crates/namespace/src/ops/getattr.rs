//! stat: attributes by FID. Needs no permission on the file itself; ENOENT if it is gone for good.
//!
//! Of several at once (EINVAL past [`GETATTRS_MAX`]) each answers for itself, in the order asked.

use sheen_wire::{
    self as wire, Attr, Errno, Fid,
    mds::{GETATTRS_MAX, Reply, Request},
};

use super::nodes::entry;
use crate::{Done, Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn getattr(&mut self, fid: Fid, layout_known: bool) -> wire::Result<Reply> {
        let mut entry = entry(fid, &*self.live(fid)?);
        if layout_known {
            entry.layout = None;
        }
        Ok(Reply::Entry(entry))
    }

    /// The attributes of the directory in which a request that was executed made or removed an entry.
    pub fn changed_dir(&mut self, request: &Request, done: &Done) -> Option<Attr> {
        let parent = match request {
            Request::Create { parent, .. } | Request::OpenCreate { parent, .. } | Request::Unlink { parent, .. } => {
                *parent
            }
            _ => return None,
        };
        if !done.touched.iter().any(|(fid, _)| *fid == parent) {
            return None;
        }
        // Not worth an error: the client asks where it has to know.
        self.tables.inode(parent).ok().flatten().map(|inode| entry(parent, &inode).attr)
    }

    pub(crate) fn getattrs(&mut self, fids: &[Fid]) -> wire::Result<Reply> {
        if fids.len() > GETATTRS_MAX {
            return Err(Errno::EINVAL);
        }
        let one = |fid: &Fid| {
            let inode = self.tables.inode(*fid)?;
            Ok(inode.map(|inode| entry(*fid, &inode)).ok_or(Errno::ENOENT))
        };
        Ok(Reply::Attrs(fids.iter().map(one).collect::<wire::Result<_>>()?))
    }
}
