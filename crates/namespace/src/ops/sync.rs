//! fsync and sync of metadata. The engine cannot wait: it answers at once, and the service holds the answer back until what
//! [`Namespace::needs_commit`] names is committed.

use sheen_wire::{self as wire, Fid, mds::Reply};

use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn sync(&mut self, _: Option<Fid>) -> wire::Result<Reply> {
        Ok(Reply::Ok)
    }
}
