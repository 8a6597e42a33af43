//! Reopen: a client opens files that it has open already. It does so after a restart of the MDT,
//! and before it cancels a lock on OPEN ([`crate::orphans`]).
//!
//! * Each file has its own result: a handle, ESTALE, or ENFILE past the limit. ESTALE means that
//!   the file is deleted: its last name was removed and committed, and recovery ended, before the
//!   client reconnected.
//! * Access is not checked again: an open file stays open when permissions change.
//! * After a restart the client opens all its files. If its connection breaks meanwhile, it begins
//!   again, and does not know the handles of before. They are closed after the last file is open
//!   again, so that an orphan among them stays.

use sheen_wire::{self as wire, Errno, Fid, mds::Reply};

use crate::{Namespace, Store, interface::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn reopen(
        &mut self,
        cx: &Cx,
        files: &[(Fid, u32, u64)],
        first: bool,
        last: bool,
    ) -> wire::Result<Reply> {
        if first {
            self.handles.begin_anew(cx.client);
        }
        let mut one = |&(fid, flags, _): &(Fid, u32, u64)| {
            self.tables.inode(fid)?.ok_or(Errno::ESTALE)?;
            self.handles.check_room(cx.client)?;
            Ok(self.handles.open(cx.client, fid, flags))
        };
        let opened = files.iter().map(&mut one).collect();
        if last {
            for (handle, fid) in self.handles.end_anew(cx.client) {
                self.close_handle(handle, fid)?;
            }
        }
        Ok(Reply::Handles(opened))
    }
}
