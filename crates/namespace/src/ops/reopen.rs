//! Reopen: a client opens files that it has open already. It does so after a restart of the MDT,
//! and before it cancels a lock on OPEN ([`crate::orphans`]).
//!
//! * Each file has its own result: a handle, ESTALE, or ENFILE past the limit. ESTALE means that
//!   the file is deleted: its last name was removed and committed, and recovery ended, before the
//!   client reconnected.
//! * Access is not checked again: an open file stays open when permissions change.

use sheen_wire::{self as wire, Errno, Fid, mds::Reply};

use crate::{Namespace, Store, interface::Cx};

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
