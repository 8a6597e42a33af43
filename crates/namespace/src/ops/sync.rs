//! fsync and sync of metadata. The engine cannot wait: it answers at once, and the service holds
//! the answer back until what [`Namespace::needs_commit`] names is committed.
//!
//! * ESTALE for a file that is gone: a crash may have taken it before it was committed. Whoever
//!   syncs a file through an open that outlived it must not hear that it is safe.

use sheen_wire::{self as wire, Errno, Fid, mds::Reply};

use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn sync(&mut self, fid: Option<Fid>) -> wire::Result<Reply> {
        if let Some(fid) = fid {
            self.tables.inode(fid)?.ok_or(Errno::ESTALE)?;
        }
        Ok(Reply::Ok)
    }
}
