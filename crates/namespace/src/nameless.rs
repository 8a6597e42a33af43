//! Files that lost their last name while clients may have them open unknown to the MDT.
//!
//! A client that has a lock on a file's OPEN bit opens the file by itself. So when the last name
//! goes, nobody can tell at once whether the file is open somewhere: it stays as if it were, until
//! all have given that bit back, each of whom opened here first what it had open
//! ([`sheen_wire::mds::Request::Reopen`]). Then it goes, if nobody did.
//!
//! Invariant: OPEN is locked only of files that have a name, or whose last name has just gone and
//! which is held here.

use sheen_wire::{Fid, FileKind, mds::flags};

use crate::{Namespace, Store, engine::Cx, record::Inode, replaced::NOBODY};

/// A file held open until nobody has its OPEN bit any more. To be given to [`Namespace::revoked`]
/// then; if the MDT stops before, the next recovery finds the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nameless {
    /// Which file.
    pub fid: Fid,
    pub(crate) handle: u64,
}

impl<S: Store> Namespace<S> {
    /// The file is about to lose its last name.
    pub(crate) fn keep_nameless(&mut self, cx: &Cx, fid: Fid, inode: &Inode) {
        if inode.kind == FileKind::Regular && cx.env.may_be_open(fid) {
            let handle = self.handles.open(NOBODY, fid, flags::RDONLY);
            self.nameless = Some(Nameless { fid, handle });
        }
    }

    /// Nobody has the file open but those that said so. Returns whether it is no more.
    pub fn revoked(&mut self, nameless: Nameless) -> bool {
        // A store that fails here leaves the orphan's record, for the next recovery; the fault is
        // kept.
        let _ = self.close_handle(nameless.handle, nameless.fid);
        self.tables.end();
        matches!(self.tables.inode(nameless.fid), Ok(None))
    }
}
