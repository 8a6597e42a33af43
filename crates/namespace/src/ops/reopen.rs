//! Reopen: a client opens files that it has open already. It does so after a restart of the MDT,
//! and before it cancels a lock on OPEN ([`crate::orphans`]).
//!
//! * Each file has its own result: a handle, ESTALE, or ENFILE past the limit. ESTALE means that
//!   the file is deleted: its last name was removed and committed, and recovery ended, before the
//!   client reconnected.
//! * Access is not checked again: an open file stays open when permissions change.
//! * The changelog has no record of these opens. It records their closes as those of other opens,
//!   with the users in the request. An open that was local counts as one without a record.
//! * After a restart the client opens all its files. If its connection breaks meanwhile, it begins
//!   again, and does not know the handles of before. They are closed after the last file is open
//!   again, so that an orphan among them stays.

use sheen_wire::{
    self as wire, Errno,
    changelog::Kind,
    mds::{NO_HANDLE, Reopened, Reply},
};

use crate::{Namespace, Store, interface::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn reopen(&mut self, cx: &Cx, files: &[Reopened], first: bool, last: bool) -> wire::Result<Reply> {
        if first {
            self.handles.begin_anew(cx.client);
        }
        let records_opens = self.changelog.mask.has(Kind::Open);
        let mut one = |&Reopened { fid, flags, handle: before, opener }: &Reopened| {
            self.tables.inode(fid)?.ok_or(Errno::ESTALE)?;
            self.handles.check_room(cx.client)?;
            let handle = self.handles.open_as(cx.client, fid, flags, opener);
            if records_opens && before != NO_HANDLE {
                self.handles.count_recorded(handle);
            }
            Ok(handle)
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
