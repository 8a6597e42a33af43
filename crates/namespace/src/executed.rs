//! Requests that arrive although they were executed already (module `replies`).

use sheen_wire::{
    self as wire,
    mds::{Reply, Request},
};

use crate::{Namespace, Store, ops::entry, replies::Origin};

impl<S: Store> Namespace<S> {
    /// Returns the reply and the transno of a request that was executed already, in this life or an
    /// earlier one.
    ///
    /// # Errors
    /// ESTALE or ENOENT: another client has removed the file since.
    pub(crate) fn executed_before(&mut self, origin: &Origin, request: &Request) -> Option<wire::Result<(Reply, u64)>> {
        let transno = self.replies.begin(origin)?;
        let reply = match request {
            Request::Link { fid, .. } | Request::SetAttr { fid, .. } => {
                self.live(*fid).map(|inode| Reply::Entry(entry(*fid, &inode)))
            }
            _ => Ok(Reply::Ok),
        };
        Some(reply.map(|reply| (reply, transno)))
    }

    /// Records the request of the operation in progress, if it must not be executed again and has
    /// changed something.
    pub(crate) fn record_executed(&mut self, origin: &Origin, request: &Request) {
        use Request::*;
        let once = matches!(
            request,
            Unlink { .. } | Rename { .. } | Link { .. } | SetAttr { .. } | SetXattr { .. } | RemoveXattr { .. }
        );
        if let Some(transno) = self.tables.transno_in_progress().filter(|_| once) {
            self.replies.executed(&mut self.tables, origin, transno);
        }
    }
}
