//! Migration: a file's objects are replaced by those of an orphan ([`Request::TakeLayout`]), while
//! clients have the file open. The orphan is the copy that the migrating client made.
//!
//! Other clients may use the old layout without a lock, so their requests may reach the OSTs at any
//! time. Therefore the OSTs seal the old objects first ([`ost::Request::Seal`]). By then clients
//! have flushed their dirty data. If a client has written since the copy began, nothing is changed.
//! Then the namespace changes, and this is durable before any client may see it. Otherwise a crash
//! could lose the change, and with it what clients wrote to the new objects. A client that meets a
//! sealed object asks the MDT for the new layout ([`Request::LayoutMoved`]).
//!
//! Nothing of this is logged. If the MDT dies between the seal and the commit, or an OST does not
//! answer, a file's current objects stay sealed. The client that meets one reports it, and the MDT
//! unseals them. The MDT alone decides: an object in a file's layout must be unsealed while no
//! migration or swap of the file is under way.
//!
//! Invariants:
//! * Only one migration or swap of a file is under way at a time
//!   ([`Relayouts`](crate::state::relayouts::Relayouts)). Meanwhile no client
//!   can have the file's objects unsealed.
//! * It continues if the requester disconnects, and is never left half done.
//! * The MDT waits for an OST only for a limited time. Each request has a number (`order`), by
//!   which the OST refuses requests that come too late. So they undo nothing of a later migration
//!   or swap. The MDT requests the unseal of an object before its reserved name may be destroyed,
//!   and an OST does not use a destroyed name again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sheen_namespace::{ClientId, Done, OpError, Renamed, Taking};
use sheen_rpc::{Cause, Export, RequestError, Response};
use sheen_rt::{Rt, operation};
use sheen_wire::mds::{Answer, Call, Reply, Request};
use sheen_wire::ost::{self, PARTS_MAX};
use sheen_wire::{Errno, Fid, Result};
use tracing::warn;

use crate::env::MdtEnv;
use crate::locks::LockedChange;
use crate::mdt::Mdt;
use crate::state::commits::Goal;
use crate::state::core::Core;
use crate::state::osp::Osp;

/// Time that an OST may take to seal a file's objects, or to give them second names. It is twice
/// the time after which an OST evicts clients that do not cancel their locks.
pub(crate) const SEAL_TIMEOUT: Duration = Duration::from_secs(40);
/// Time that an OST may take to unseal them.
const UNSEAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a request is repeated that met an OST in recovery.
const RECOVERING_PAUSE: Duration = Duration::from_millis(500);

impl Mdt {
    /// Executes a [`Request::TakeLayout`].
    pub(crate) async fn take_layout(&self, export: &Arc<Export>, call: &Call) -> Result<Response<Answer>> {
        let (export, request) = (export.clone(), call.request.clone());
        let work = |mdt: Arc<Mdt>| async move { mdt.take(&export, &request).await };
        let transno = self.run_to_end("mdt-migrate", work).await?;
        Ok(Response::with_transno(Reply::Ok.into(), transno))
    }

    async fn take(&self, export: &Export, request: &Request) -> Result<u64> {
        let Request::TakeLayout { fid, versions, group, .. } = request else { return Err(Errno::EPROTO) };
        let _relayout = self.relayouts.begin(*fid).ok_or(Errno::EBUSY)?;
        self.commits.admit().await?;
        let taking = {
            let mut core = self.core.lock();
            let taking = core.ns.begin_take(request);
            self.wake_committer(&core);
            taking?
        };
        let taken = self.take_begun(export, request, &taking, versions, *group).await;
        if taken.is_err() {
            let renamed = taking.renamed.iter().map(|name| (name.ost, name.old));
            self.unseal(&taking.leaving.iter().copied().chain(renamed).collect::<Vec<_>>()).await;
        }
        self.core.lock().ns.end_take(*fid);
        if !taking.renamed.is_empty() {
            self.destroyer.rescan();
        }
        // MOVED: an earlier migration left an object sealed. It is unsealed now.
        let busy = |errno: Errno| if errno == Errno::MOVED { Errno::EBUSY } else { errno };
        let (transno, change) = taken.map_err(busy)?;
        change.revoke_when(self.durable(transno), self.fences.settled()).await?;
        Ok(transno)
    }

    async fn take_begun(
        &self,
        export: &Export,
        request: &Request,
        taking: &Taking,
        versions: &[(Fid, u64)],
        group: Option<u64>,
    ) -> Result<(u64, LockedChange)> {
        self.seal(&taking.leaving, versions, group).await?;
        self.seal_old_names(&taking.renamed).await?;
        self.link_new_names(&taking.renamed).await?;
        self.execute_take(export, request).await
    }

    /// Prepares the reply to a [`Request::LayoutMoved`]. Waits until no migration or swap of the
    /// file is under way. If the layout still has this generation, unseals the file's objects.
    pub(crate) async fn settle_layout(&self, fid: Fid, generation: u32) -> Result<()> {
        let _relayout = self.relayouts.turn(fid).await;
        let layout = self.core.lock().ns.layout(fid)?;
        if let Some(layout) = layout.filter(|layout| layout.generation() == generation) {
            let objects: Vec<_> = layout.all_objects().map(|s| (s.ost, s.object)).collect();
            self.unseal(&objects).await;
        }
        Ok(())
    }

    /// Changes the namespace as soon as no other request is changing one of the two files.
    pub(crate) async fn execute_take(&self, export: &Export, request: &Request) -> Result<(u64, LockedChange)> {
        loop {
            let busy = {
                let mut core = self.core.lock();
                if self.stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(Errno::ESHUTDOWN);
                }
                match self.unsettled(&mut core, request) {
                    Some(fid) => fid,
                    None => return self.execute_take_now(&mut core, export, request),
                }
            };
            self.locks.settled(busy).await;
        }
    }

    fn execute_take_now(&self, core: &mut Core, export: &Export, request: &Request) -> Result<(u64, LockedChange)> {
        let Core { ns, placer, .. } = core;
        let mut env =
            MdtEnv { mdt: self, placer, now: self.rt.now(), waited: Duration::ZERO, client: Some(export), wait: false };
        let done = ns.execute(ClientId(export.id()), request, &mut env);
        let done = done.map_err(|error| match error {
            OpError::Errno(errno) => errno,
            // The new objects were reserved before, so the change needs no further ids.
            OpError::CommitFirst => Errno::EBUSY,
        });
        if let Some(fault) = if matches!(done, Err(Errno::EIO)) { ns.take_fault() } else { None } {
            self.store_failed(request.op(), &fault);
        }
        let Done { transno, invalidations, .. } = done?;
        let change = self.lasting_change(Some(export), &invalidations);
        self.wake_committer(core);
        Ok((transno, change))
    }

    /// Waits until a change is durable. If the store fails, waits for the next attempt unless the
    /// MDT stops. If the store is damaged, waits until the MDT stops: no client may use a layout
    /// that the restarted MDT will not know.
    ///
    /// # Errors
    /// EIO, ESHUTDOWN: the MDT stops and cannot commit the change.
    pub(crate) async fn durable(&self, transno: u64) -> Result<()> {
        loop {
            match self.commits.reach(Goal::Transno(transno)).await {
                Err(Errno::EIO) if !self.locks.is_stopping() => {
                    if self.commits.is_damaged() {
                        self.locks.wait_stopping().await;
                    }
                }
                reached => return reached,
            }
        }
    }

    /// Makes the OSTs seal objects, if the objects still have these versions.
    async fn seal(&self, objects: &[(u32, Fid)], versions: &[(Fid, u64)], group: Option<u64>) -> Result<()> {
        let versions: BTreeMap<Fid, u64> = versions.iter().copied().collect();
        let request = |objects: Vec<Fid>, order| {
            let version = |object: Fid| Some((object, Some(*versions.get(&object)?)));
            ost::Request::Seal { objects: objects.into_iter().filter_map(version).collect(), group, order }
        };
        self.each_ost(objects, SEAL_TIMEOUT, request).await
    }

    /// Makes the OSTs seal objects that will get other names.
    pub(crate) async fn seal_old_names(&self, names: &[Renamed]) -> Result<()> {
        let old: Vec<_> = names.iter().map(|name| (name.ost, (name.old, None))).collect();
        let request = |objects, order| ost::Request::Seal { objects, group: None, order };
        self.each_ost(&old, SEAL_TIMEOUT, request).await
    }

    /// Gives sealed objects their new names in addition to the old ones.
    pub(crate) async fn link_new_names(&self, names: &[Renamed]) -> Result<()> {
        let both: Vec<_> = names.iter().map(|name| (name.ost, (name.old, name.new))).collect();
        self.each_ost(&both, SEAL_TIMEOUT, |objects, order| ost::Request::Link { objects, order }).await
    }

    /// Makes the OSTs unseal objects. An object that cannot be reached now is unsealed when a
    /// client reports it.
    pub(crate) async fn unseal(&self, objects: &[(u32, Fid)]) {
        let request = |objects, order| ost::Request::Unseal { objects, order };
        if let Err(errno) = self.each_ost(objects, UNSEAL_TIMEOUT, request).await {
            warn!(
                "{}: unsealing objects after a migration or layout swap failed ({errno}); the next access to one retries",
                self.name
            );
        }
    }

    /// Sends the requests for these objects to their OSTs, all in parallel, with at most
    /// [`PARTS_MAX`] objects each. `request` gets the objects and the request's order. Returns an
    /// error if any of them fails.
    async fn each_ost<T: Copy>(
        &self,
        objects: &[(u32, T)],
        timeout: Duration,
        request: impl Fn(Vec<T>, u64) -> ost::Request,
    ) -> Result<()> {
        let mut per_ost: BTreeMap<u32, Vec<T>> = BTreeMap::new();
        for (ost, object) in objects {
            per_ost.entry(*ost).or_default().push(*object);
        }
        let order = self.relayouts.next_request();
        let mut tasks = Vec::new();
        let mut outcome = Ok(());
        for (ost, objects) in per_ost {
            match self.osts.connected(ost) {
                None => outcome = Err(Errno::EIO),
                Some(osp) => tasks.extend(objects.chunks(PARTS_MAX).map(|objects| {
                    let request = request(objects.to_vec(), order);
                    let run = until_recovered(self.rt.clone(), osp.clone(), request, timeout);
                    self.rt.spawn("migrate", operation::inherit(run))
                })),
            }
        }
        for task in tasks {
            outcome = outcome.and(task.await.unwrap_or(Err(Errno::EIO)));
        }
        outcome
    }
}

/// Sends a request to an OST, and repeats it while the OST is in recovery.
///
/// # Errors
/// ETIMEDOUT: the OST has not executed it within `limit`; it may do so later. The OST's error.
async fn until_recovered(rt: Rt, osp: Arc<Osp>, request: ost::Request, limit: Duration) -> Result<()> {
    let op = request.op();
    let executed = async {
        loop {
            match osp.run(request.clone()).await {
                Err(e) if *e.cause() == Cause::Answered(Errno::EAGAIN) => rt.sleep(RECOVERING_PAUSE).await,
                answer => return answer,
            }
        }
    };
    let answer = rt.timeout(limit, executed).await.unwrap_or_else(|_| Err(osp.no_reply(op, limit)));
    answer.map_err(RequestError::into_errno)
}
