//! Replay: a client repeats a change that was answered and not committed before the MDT crashed.
//!
//! The change has the same result as the first time. The changes of all clients are replayed in the
//! order of their transnos. Each comes with the MDT's decisions of then ([`Decided`]). So the time
//! is the same, and the layout has the objects to which the client may have written.
//!
//! * Permissions are checked again, except those of an open file: its handle does not exist any
//!   more. For the same reason a replayed open or create leaves no open file. Clients open their
//!   files again (`Reopen`) when all changes are replayed.
//! * Until the recovery ends, a file without names is not deleted: a client may be about to open it
//!   again.
//! * Objects of a replayed layout are removed from the orphan ranges with the same batch
//!   ([`crate::OrphanRange`]).
//! * A name refers to the same file as then, or the change is not made. Otherwise it would remove
//!   or truncate another file. The name refers to another one if it depends on a lost change.
//! * An error changes nothing: the change is lost. The reason is usually that it depends on a
//!   change of a client that did not come back.

use bytes::Bytes;
use sheen_layout::{Layout, MDT_OST, Stripe};
use sheen_wire::{
    self as wire, Errno, Fid, FileKind,
    mds::{Reply, Request},
};

use crate::{ClientId, Decided, Env, Namespace, OpError, Store, interface::Cx, ops};

impl<S: Store> Namespace<S> {
    /// Replays a change.
    ///
    /// # Errors
    /// ESTALE: a later change was executed already, or a name refers to another file. EINVAL:
    /// clients do not replay such a request. Others as the operation.
    pub fn replay(
        &mut self,
        client: ClientId,
        request: &Request,
        decided: Decided,
        env: &mut dyn Env,
    ) -> wire::Result<()> {
        if decided.transno <= self.last_transno() {
            return Err(Errno::ESTALE);
        }
        if !request.is_replayed() {
            return Err(Errno::EINVAL);
        }
        if !decided.named.is_empty() {
            self.check_named(request, &decided.named)?;
        }
        let next = self.tables.skip_to(decided.transno);
        let mut cx = Cx { client, now: decided.time, env };
        self.replaying = Some(decided);
        let result = ops::execute(self, &mut cx, request);
        let layout = self.replaying.take().and_then(|decided| decided.layout);
        // Nothing is held open for clients: in a recovery no file is deleted.
        if let Some(orphan) = self.orphan.take() {
            self.handles.close(orphan.handle);
        }
        if let Ok(Reply::Opened { handle, .. }) = &result {
            self.handles.close(*handle);
        }
        let claimed = match (&result, layout) {
            (Ok(_), Some(layout)) => self.claim(&layout),
            _ => Ok(()),
        };
        if self.tables.end().0 == 0 {
            self.tables.skip_back(next);
        }
        match result {
            Ok(_) => claimed,
            Err(OpError::Errno(errno)) => Err(errno),
            // A replay allocates nothing, unless the client has left out the layout.
            Err(OpError::CommitFirst) => Err(Errno::EPROTO),
        }
    }

    /// Checks that the request's names refer to some of these files, or to none.
    fn check_named(&mut self, request: &Request, named: &[Fid]) -> wire::Result<()> {
        let names = match request {
            Request::OpenCreate { parent, name, .. } | Request::Unlink { parent, name, .. } => {
                [Some((*parent, name)), None]
            }
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                [Some((*parent, name)), Some((*new_parent, new_name))]
            }
            _ => [None, None],
        };
        for (parent, name) in names.into_iter().flatten() {
            if self.find(parent, name)?.is_some_and(|entry| !named.contains(&entry.fid)) {
                return Err(Errno::ESTALE);
            }
        }
        Ok(())
    }

    /// Adopts the layout of a file that a client knows from before a crash, if the MDT has lost it.
    /// Returns whether it has.
    ///
    /// The layout is newer than the stored one, and its additional objects are in orphan ranges.
    /// Otherwise the file has lost its objects to another one, by a migration or a swap. That is
    /// durable before clients learn of it.
    ///
    /// # Errors
    /// ENOENT: there is no such file. EINVAL: not the layout of a regular file.
    pub fn adopt_layout(&mut self, fid: Fid, layout: &Bytes) -> wire::Result<bool> {
        let adopted = self.try_adopt(fid, layout);
        self.tables.end();
        adopted
    }

    fn try_adopt(&mut self, fid: Fid, bytes: &Bytes) -> wire::Result<bool> {
        let inode = self.tables.inode(fid)?.ok_or(Errno::ENOENT)?;
        if inode.kind != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        let layout = Layout::decode(bytes)?;
        let stored = inode.layout.as_ref().map(|stored| Layout::decode(stored)).transpose()?;
        if stored.as_ref().is_some_and(|stored| stored.generation() >= layout.generation()) {
            return Ok(false);
        }
        let has = |object| stored.iter().flat_map(Layout::all_objects).any(|stripe| stripe.object == object);
        let was_lost = |stripe: Stripe| {
            stripe.ost == MDT_OST || has(stripe.object) || self.objects.is_orphan(stripe.ost, stripe.object)
        };
        if !layout.all_objects().all(was_lost) {
            return Ok(false);
        }
        self.edit(fid, |inode| inode.layout = Some(bytes.clone()))?;
        self.claim(bytes)?;
        Ok(true)
    }

    /// Returns the layout that the change being replayed has given to its file. `None`: no change
    /// is being replayed.
    ///
    /// # Errors
    /// EPROTO: the client sent none.
    pub(crate) fn replayed_layout(&self) -> Option<wire::Result<Layout>> {
        let decided = self.replaying.as_ref()?;
        Some(match &decided.layout {
            Some(bytes) => Layout::decode(bytes).map_err(Errno::from),
            None => Err(Errno::EPROTO),
        })
    }

    /// Removes the objects of a layout from the orphan ranges. Meanwhile their OSTs may have asked
    /// for their owner, and have learned that no file has them.
    fn claim(&mut self, layout: &Bytes) -> wire::Result<()> {
        let layout = Layout::decode(layout)?;
        for stripe in layout.all_objects().filter(|stripe| stripe.ost != MDT_OST) {
            self.objects.claim(&mut self.tables, stripe.ost, stripe.object)?;
        }
        self.tables.log_owner(layout.fid());
        Ok(())
    }
}
