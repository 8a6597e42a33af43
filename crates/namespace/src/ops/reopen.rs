//! Reopen: after a restart of the MDT a client opens its files anew, by the right that it got when
//! it opened them first.
//!
//! Each file answers for itself: a handle, ESTALE if the file is gone (its last name was removed
//! and committed, and recovery ended, before the client came), ENFILE past the limit. Access is not
//! checked again: an open file stays open when permissions change.

use sheen_wire::{self as wire, Errno, Fid, mds::Reply};

use crate::{Namespace, Store, engine::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn reopen(&mut self, cx: &Cx, files: &[(Fid, u32, u64)]) -> wire::Result<Reply> {
        let mut one = |&(fid, flags, _): &(Fid, u32, u64)| {
            self.tables.inode(fid)?.ok_or(Errno::ESTALE)?;
            self.handles.check_room(cx.client)?;
            Ok(self.handles.open(cx.client, fid, flags))
        };
        Ok(Reply::Handles(files.iter().map(&mut one).collect()))
    }
}
