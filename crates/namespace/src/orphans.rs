//! Orphans that clients may have open without the MDT's knowledge.
//!
//! A client that holds a lock on a file's OPEN bit opens the file locally. When the last name is
//! removed, the MDT therefore cannot tell at once whether the file is open. It holds the file open
//! until all clients have cancelled their OPEN locks. Before a client cancels, it opens at the MDT
//! what it has open ([`sheen_wire::mds::Request::Reopen`]). Then the MDT deletes the file, unless a
//! client opened it.
//!
//! Invariant: OPEN locks exist only on files that have a name, and on files that are held open here
//! because they have just lost their last name.

use sheen_wire::{Fid, FileKind, mds::flags};

use crate::{HeldOrphan, Namespace, Store, held::INTERNAL_CLIENT, interface::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    /// Holds a file open that is about to lose its last name, if clients may have it open.
    pub(crate) fn hold_orphan(&mut self, cx: &Cx, fid: Fid, inode: &Inode) {
        if inode.kind == FileKind::Regular && cx.env.may_be_open(fid) {
            let handle = self.handles.open(INTERNAL_CLIENT, fid, flags::RDONLY);
            self.orphan = Some(HeldOrphan { fid, handle });
        }
    }

    /// Ends the hold on an orphan: no client has an OPEN lock any more, and clients that have the
    /// file open have reported it. Returns whether the file is deleted.
    pub fn release_orphan(&mut self, orphan: HeldOrphan) -> bool {
        // If the store fails here, the orphan's record remains for the next recovery, and
        // `take_fault` returns the error.
        let _ = self.close_handle(orphan.handle, orphan.fid);
        self.tables.end();
        matches!(self.tables.inode(orphan.fid), Ok(None))
    }
}
