//! fsync and sync of metadata. The engine cannot wait and replies at once. The service holds the
//! reply back until the transno from [`Namespace::needs_commit`] is committed.
//!
//! * ESTALE for a deleted file: a crash may have lost it before it was committed. An fsync through
//!   an open that outlived the file must not succeed.

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
