//! Requests that arrive although they were executed already (module `replies`).
//!
//! They change nothing, with one exception: a program waits for the file that it creates and opens,
//! and another client has removed that file since. So the file is made again, without a name. The
//! service answers when that is durable ([`crate::Done::repeated`]); otherwise the client would
//! replay the request after a crash, and so create the name again.

use sheen_wire::mds::{
    Reply, Request,
    flags::{self, EXCL},
};

use crate::{
    Namespace, Store,
    error::OpResult,
    interface::Cx,
    ops::{New, entry, removed_entry},
    replies::Origin,
};

impl<S: Store> Namespace<S> {
    /// Returns the reply to a request that was executed already, in this life or an earlier one.
    ///
    /// # Errors
    /// ENOENT: another client has removed the file since. For an open whose file was removed, those
    /// of an O_TMPFILE in the directory.
    pub(crate) fn answer_again(&mut self, cx: &mut Cx, request: &Request) -> OpResult<Reply> {
        match request {
            Request::Link { fid, .. } | Request::SetAttr { fid, .. } => {
                Ok(Reply::Entry(entry(*fid, &*self.live(*fid)?)))
            }
            Request::Create { cred, parent, fid, node, mode, umask, .. } => {
                let new = New { cred, parent: *parent, fid: *fid, mode: *mode, umask: *umask };
                Ok(Reply::Entry(match self.tables.inode(*fid)? {
                    Some(inode) => entry(*fid, &inode),
                    None => removed_entry(cx, &new, node)?,
                }))
            }
            Request::OpenCreate { cred, parent, fid, flags, mode, umask, .. } => {
                let new = New { cred, parent: *parent, fid: *fid, mode: *mode, umask: *umask };
                self.reopen_created(cx, &new, *flags)
            }
            _ => Ok(Reply::Ok),
        }
    }

    /// Opens the file that an earlier execution of the request created.
    fn reopen_created(&mut self, cx: &mut Cx, new: &New, flags: u32) -> OpResult<Reply> {
        if self.tables.inode(new.fid)?.is_none() {
            return self.make_unnamed(cx, new, flags, true);
        }
        if !self.is_own(new)? {
            // Another client has changed the owner, or a client misuses the number of a request.
            return self.open_fid(cx, new.cred, new.fid, flags & !(flags::TRUNC | EXCL));
        }
        self.handles.check_room(cx.client)?;
        Ok(self.opened(cx, new.cred, new.fid, flags, true)?)
    }

    /// Records the request of the operation in progress, if it must not be executed again and has
    /// changed something.
    pub(crate) fn record_executed(&mut self, origin: &Origin, request: &Request, reply: &Reply) {
        use Request::*;
        let once = match request {
            Create { .. } | Unlink { .. } | Rename { .. } | Link { .. } => true,
            SetAttr { .. } | SetXattr { .. } | RemoveXattr { .. } => true,
            OpenCreate { .. } => matches!(reply, Reply::Opened { created: true, .. }),
            _ => false,
        };
        if let Some(transno) = self.tables.transno_in_progress().filter(|_| once) {
            self.replies.executed(origin, transno);
        }
    }
}
