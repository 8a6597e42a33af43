//! stat: attributes by FID. Needs no permission on the file itself; ENOENT if the file is deleted.

use sheen_wire::{
    self as wire, Attr, Fid,
    mds::{Reply, Request},
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

    /// Returns the attributes of the directory in which an executed request created or removed an
    /// entry.
    pub fn changed_dir(&mut self, request: &Request, done: &Done) -> Option<Attr> {
        let parent = match request {
            Request::Create { parent, .. } | Request::OpenCreate { parent, .. } | Request::Unlink { parent, .. } => {
                *parent
            }
            _ => return None,
        };
        if !done.invalidations.iter().any(|(fid, _)| *fid == parent) {
            return None;
        }
        // A read error is not reported: the client asks again if it needs the attributes.
        self.tables.inode(parent).ok().flatten().map(|inode| entry(parent, &inode).attr)
    }
}
