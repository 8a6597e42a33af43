//! Requests to an OST: checked, counted, and passed to the [`crate::Store`] once no other client
//! caches the data that they change.

use std::{sync::Arc, time::Duration};

use sheen_lnet::Nid;
use sheen_objects::{change::pieces, check, name::Dir};
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    ldlm::Enqueue,
    ost::{PARTS_MAX, Part, Reply, Request},
};

use crate::{
    Ost,
    brw_stats::Transfer,
    changes::{Fallocate, ObjectChange, Outcome, Revoke, Transnos, Truncate, Write},
    counters::bytes_of,
    ost::BLOCKING_OBJECTS,
    quota::SpaceAdmission,
};

/// Size in bytes from which a read or write is announced to the runtime as blocking, so that other
/// tasks of the thread move to another thread. Below, the announcement costs more than the copy.
const BLOCKING_BYTES: usize = 1 << 20;
/// Requests on fewer objects run on the task that reads the connection: they take some ten
/// microseconds.
const INLINE_OBJECTS: usize = 8;

impl Service<sheen_wire::Ost> for Ost {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, Result<Response<Reply>>> {
        Box::pin(async move {
            let _pass = self.gate.enter().ok_or(Errno::ESHUTDOWN)?;
            self.seen(export);
            let start = self.rt.now();
            let op = request.op();
            let transfer = self.brw_stats.begin(&request);
            let written = matches!(request, Request::Write { .. }).then_some(bulk.len());
            let result = self.serve(export, request, bulk).await;
            let bytes = result.as_ref().ok().and_then(|response| bytes_of(&response.body, written));
            let usecs = self.count(export, op, start, bytes);
            if let (Some(transfer), Ok(response)) = (transfer, &result)
                && !matches!(response.body, Reply::LockFirst)
            {
                transfer.done(usecs);
            }
            result
        })
    }

    fn disconnected(&self, export: &Export) {
        self.exports.write().remove(export);
        self.capabilities.disconnected(export);
        self.disconnected_client(export);
        self.locks.lockd().disconnected(export);
        self.release_grant(export);
        self.quota_disconnected(export);
        self.store.abort_copy_of(export.id());
        self.export_stats.disconnected(export);
    }

    fn reconnected(&self, export: &Arc<Export>) {
        self.locks.lockd().reconnected(export);
    }

    fn recovery_left(&self) -> Option<Duration> {
        self.recovery.left_max()
    }

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn last_committed(&self) -> u64 {
        self.store.committed()
    }

    fn reply_bytes(&self, request: &Request) -> usize {
        match request {
            Request::Read { parts } => parts.iter().fold(0, |sum, p| sum.saturating_add(p.len as usize)),
            _ => 0,
        }
    }

    /// A read that waits for the recovery must not hold room for which a flush may wait.
    fn postponed(&self, export: &Arc<Export>, request: &Request) -> Option<BoxFuture<'static, ()>> {
        if self.recovery.is_ended() || !matches!(request, Request::Read { .. }) {
            return None;
        }
        let (ost, export) = (self.me.upgrade()?, export.clone());
        Some(Box::pin(async move {
            // If the OST stops or the client disconnects, the read fails when it is executed.
            let _ = ost.locks.unless_disconnected(&export, ost.recovery.ended()).await;
        }))
    }

    fn inline(&self, request: &Request) -> bool {
        match request {
            // Those that have to wait continue in another task.
            Request::StatFs | Request::Seek { .. } | Request::Cancel { .. } | Request::Glimpsed { .. } => true,
            Request::Present { capabilities } => capabilities.len() < INLINE_OBJECTS,
            Request::Enqueue { locks, .. } => locks.len() < INLINE_OBJECTS,
            Request::Attrs { objects } => objects.len() < INLINE_OBJECTS,
            _ => false, // copies data, or may wait for the disk
        }
    }
}

/// Turns MOVED into MOVED_PARTLY, for requests of which other parts may be done already.
fn partly(errno: Errno) -> Errno {
    if errno == Errno::MOVED { Errno::MOVED_PARTLY } else { errno }
}

impl Ost {
    async fn serve(&self, export: &Arc<Export>, request: Request, bulk: Bulk) -> Result<Response<Reply>> {
        check::request(&request, bulk.len())?;
        self.check_authority(export, &request)?;
        if !self.recovery.is_ended() {
            if let Some(reply) = Box::pin(self.wait_for_recovery(export, &request)).await? {
                return Ok(reply.into());
            }
            // Until now it could have an expired capability, as a replay may.
            self.check_authority(export, &request)?;
        }
        let body = match request {
            Request::Read { mut parts } => {
                let response = self.read(export, &parts).await?;
                if let Reply::Read(lens) = &response.body {
                    // Fewer bytes than requested at the end of an object.
                    parts.iter_mut().zip(lens).for_each(|(part, len)| part.len = *len);
                    self.brw_stats.transferred(Transfer::Read, &parts);
                }
                return Ok(response);
            }
            Request::Write { file, parts, sync, mtime, grant, held: _ } => {
                let transnos = match self.write(export, (file, &parts[..]), &bulk, mtime, grant.used).await? {
                    Outcome::LockFirst => return Ok(Reply::LockFirst.into()),
                    Outcome::Made(transnos) => transnos,
                };
                self.disk.wait(self.disk.write(&parts)).await;
                if sync {
                    self.sync_parts(&parts).await?;
                }
                let is_tight = self.is_tight(parts.iter().map(|part| part.object));
                return Ok(self.done(transnos, self.grant(export, grant.want), is_tight));
            }
            Request::Attrs { objects } => Reply::Attrs(self.attrs(export, &objects).await?),
            Request::Enqueue { locks, want } => self.enqueue(export, &locks, want).await?,
            Request::Glimpsed { answers } => {
                self.locks.lockd().glimpse_answered(export, &answers);
                Reply::Ok
            }
            Request::Cancel { locks } => {
                self.locks.lockd().cancel(export, &locks);
                Reply::Ok
            }
            Request::Truncate { file, objects } => {
                let blocking = objects.len() >= BLOCKING_OBJECTS;
                let change = |&(object, size): &(Fid, u64)| (object, Truncate { file, object, size });
                let outcome = self.change_some(export, objects.iter().map(change).collect(), blocking).await?;
                return Ok(self.changed(outcome, objects.iter().map(|(object, _)| *object)));
            }
            Request::Allocate { file, mode, runs } => {
                let _space = self.reserve_for_allocate(export, mode, &runs)?;
                let SpaceAdmission::Admitted(_reserved) = self.admit_allocate(export, file, mode, &runs).await? else {
                    return Ok(Reply::LockFirst.into());
                };
                let change = |&run: &(Fid, u64, u64)| (run.0, Fallocate { file, mode, run });
                let outcome = self.change_some(export, runs.iter().map(change).collect(), true).await?;
                return Ok(self.changed(outcome, runs.iter().map(|run| run.0)));
            }
            Request::Seek { object, offset, what } => Reply::Offset(self.seek(export, object, offset, what).await?),
            Request::Sync { objects } => {
                self.sync(export, &objects).await?;
                return Ok(self.done(Transnos::default(), 0, false));
            }
            Request::Destroy { objects } => {
                self.revoke(export, &objects).await?;
                self.store.destroy(&objects).await?;
                // Until then, clients may replay changes that create the objects again. If this OST
                // fails before, its next life does not know of the removal.
                self.locks.unless_disconnected(export, self.recovery.ended()).await?;
                self.settle(&objects).await?;
                Reply::Ok
            }
            Request::DestroyRange { seq, first, last } => {
                self.revoke_range(export, seq, first, last).await?;
                self.store.destroy_range(seq, first, last).await?;
                self.destroyed_range(seq, first, last);
                self.settle_where(|object| object.seq == seq && (first..=last).contains(&object.oid)).await?;
                Reply::Ok
            }
            Request::StatFs => Reply::StatFs(self.statfs()?),
            Request::List { after } => {
                Reply::Objects(self.perhaps_blocking(true, || self.store.objects_after(after, PARTS_MAX))?)
            }
            Request::Stored { objects } => Reply::Stored(self.perhaps_blocking(true, || self.store.stored(&objects))),
            Request::Versions { objects, flush } => {
                Reply::Versions(Box::pin(self.versions(export, &objects, flush)).await?)
            }
            Request::Seal { objects, group, order } => {
                Box::pin(self.seal(export, &objects, group, order)).await?;
                Reply::Ok
            }
            Request::Unseal { objects, order } => {
                self.unseal(export, &objects, order)?;
                Reply::Ok
            }
            Request::Recover => self.client_returned(export)?,
            Request::Evict { client } => {
                self.evict(export, &client).await;
                Reply::Ok
            }
            Request::Replay { changes, first, last } => {
                Box::pin(self.replay(export, changes, &bulk, first, last)).await?
            }
            Request::Recovered { incarnation } => self.client_recovered(export, incarnation),
            Request::Follow { objects } => {
                let names = self.store.follow(&objects)?;
                self.capabilities.followed(export, &objects, &names);
                Reply::Objects(names)
            }
            Request::Present { capabilities } => {
                self.present(export, &capabilities);
                Reply::Ok
            }
            Request::Link { objects, order } => {
                Box::pin(self.link(export, &objects, order)).await?;
                Reply::Ok
            }
            Request::SetOwners { owners, only_unowned } => {
                self.quota.hear();
                Box::pin(self.store.set_owners(&owners, only_unowned)).await?;
                Reply::Ok
            }
            Request::QuotaWait => Box::pin(self.quota_wait(export)).await?,
            Request::QuotaAllow { ids, all } => {
                self.quota.hear();
                Reply::Used(self.store.accounting().allow(&ids, all))
            }
            Request::QuotaUse { first } => self.quota_use(first),
            Request::Repair { object, block, at } => {
                Box::pin(self.repair(export, object, block, at, &bulk)).await?;
                Reply::Ok
            }
            Request::Recreate { object, step } => {
                Box::pin(self.recreate(export, object, step, &bulk)).await?;
                Reply::Ok
            }
        };
        Ok(body.into())
    }

    /// Number of connected clients that have sent a request.
    pub(crate) fn exports(&self) -> u64 {
        self.exports.read().len() as u64
    }

    fn seen(&self, export: &Arc<Export>) {
        if self.exports.read().has(export) {
            return;
        }
        self.exports.write().insert(export);
        if export.is_ended() {
            self.disconnected(export); // it disconnected meanwhile, and the server will not report that again
        }
    }

    fn done(&self, transnos: Transnos, granted: u64, tight: bool) -> Response<Reply> {
        let Transnos { last, each } = transnos;
        Response::with_transno(Reply::Done { epoch: self.store.epoch(), granted, transnos: each, tight }, last)
    }

    fn changed(&self, outcome: Outcome, objects: impl Iterator<Item = Fid>) -> Response<Reply> {
        match outcome {
            Outcome::Made(transnos) => self.done(transnos, 0, self.is_tight(objects)),
            Outcome::LockFirst => Reply::LockFirst.into(),
        }
    }

    async fn sync(&self, export: &Export, objects: &[Fid]) -> Result<()> {
        // A commit is a sync as well, but does not count changes of clients of this process.
        if objects.is_empty() && export.nid() != Nid::Lo && self.commits.last() > self.store.committed() {
            return self.commit().await;
        }
        self.store.sync(objects).await?;
        self.disk.wait(self.disk.sync()).await;
        self.settle_shared(objects).await
    }

    async fn read(&self, export: &Arc<Export>, parts: &[Part]) -> Result<Response<Reply>> {
        if self.disk.is_modelled() {
            // Before the read, which takes locks and checksums.
            let sizes = parts.iter().map(|part| Ok(self.store.attr(part.object)?.size));
            let sizes = sizes.collect::<Result<Vec<u64>>>()?;
            self.disk.wait(self.disk.read(parts, &sizes)).await;
        }
        if !self.is_written(export, parts) {
            self.read_written(export, parts).await
        } else if let Some(response) = self.in_place(export, parts)? {
            Ok(response)
        } else {
            self.read_now(export, parts)
        }
    }

    fn read_now(&self, export: &Export, parts: &[Part]) -> Result<Response<Reply>> {
        let remote = export.nid() != Nid::Lo;
        if remote && let Some((lens, live)) = self.store.live(parts)? {
            return Ok(Response::with_live(Reply::Read(lens), live));
        }
        let wanted: usize = parts.iter().map(|p| p.len as usize).sum();
        let blocking = wanted > BLOCKING_BYTES || parts.len() >= BLOCKING_OBJECTS;
        let (lens, bulk) = self.perhaps_blocking(blocking, || {
            if remote { self.store.read_and_sum(parts) } else { self.store.read(parts) }
        })?;
        Ok(Response::with_bulk(Reply::Read(lens), bulk))
    }

    async fn write(
        &self,
        export: &Arc<Export>,
        (file, parts): (Fid, &[Part]),
        bulk: &Bulk,
        mtime: Option<Time>,
        used: u64,
    ) -> Result<Outcome> {
        self.locks.prolong(export, parts);
        self.list_client(export).await;
        let space = self.reserve_for_write(export, parts, used)?;
        let SpaceAdmission::Admitted(_reserved) =
            self.admit_write(export, (file, parts), bulk.len(), mtime.is_some()).await?
        else {
            space.withdraw();
            return Ok(Outcome::LockFirst);
        };
        let sum = export.nid() != Nid::Lo;
        let blocking = bulk.len() > BLOCKING_BYTES || parts.len() >= BLOCKING_OBJECTS;
        let outcome = if parts.windows(2).all(|two| two[0].object == two[1].object) {
            self.change(export, Write { file, parts, bulk, sum, mtime }, blocking).await?
        } else {
            let pieces = pieces(parts, bulk);
            let mut writes = Vec::with_capacity(pieces.len());
            for (object, (parts, bulk)) in &pieces {
                writes.push((*object, Write { file, parts, bulk, sum, mtime }));
            }
            self.change_some(export, writes, blocking).await?
        };
        match &outcome {
            Outcome::LockFirst => space.withdraw(),
            Outcome::Made(_) => self.brw_stats.transferred(Transfer::Write, parts),
        }
        Ok(outcome)
    }

    /// Changes objects. If one of several objects is sealed, others may have been changed:
    /// MOVED_PARTLY.
    async fn change_some<C: ObjectChange>(
        &self,
        export: &Arc<Export>,
        changes: Vec<(Fid, C)>,
        blocking: bool,
    ) -> Result<Outcome> {
        self.list_client(export).await;
        let several = changes.len() > 1;
        self.store.check_unsealed(changes.iter().map(|(object, _)| *object))?;
        let done = self.change_each(export, changes.into_iter().map(|(_, change)| change), blocking).await;
        if several { done.map_err(partly) } else { done }
    }

    async fn revoke(&self, export: &Export, objects: &[Fid]) -> Result<()> {
        self.change_each(export, objects.iter().copied().map(Revoke), false).await.map(drop)
    }

    /// Revokes the locks on all objects that [`crate::Store::destroy_range`] is going to remove.
    /// Objects that do not exist need no revocation: they read as empty before and after.
    async fn revoke_range(&self, export: &Export, seq: u64, first: u32, last: u32) -> Result<()> {
        for dir in Dir::all(seq) {
            for objects in self.store.list(dir, first, last)?.chunks(PARTS_MAX) {
                self.revoke(export, objects).await?;
            }
        }
        Ok(())
    }

    async fn enqueue(&self, export: &Arc<Export>, wants: &[Enqueue], want: u64) -> Result<Reply> {
        self.list_client(export).await;
        let (answers, undelivered) = self.locks.enqueue(export, wants).await?;
        // Only after the grant: earlier attributes could miss what other clients flushed for it.
        let attrs = self.attrs_with(export, wants, &answers).await?;
        undelivered.delivered();
        let granted = self.grant(export, want);
        // A lock for reading permits no write.
        let writes = wants.iter().filter(|want| want.mode.writes());
        let tight = self.is_tight(writes.map(|want| want.resource.fid));
        Ok(Reply::Enqueued { locks: answers.into_iter().zip(attrs).collect(), granted, tight })
    }

    async fn sync_parts(&self, parts: &[Part]) -> Result<()> {
        let mut objects: Vec<Fid> = parts.iter().map(|p| p.object).collect();
        objects.sort_unstable();
        objects.dedup();
        self.store.sync_written(&objects).await?;
        self.disk.wait(self.disk.sync()).await;
        self.settle_shared(&objects).await
    }
}
