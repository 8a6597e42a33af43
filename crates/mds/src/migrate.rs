//! Migration: a file leaves its objects for those of a nameless file ([`Request::TakeLayout`]),
//! while others have it open.
//!
//! Others keep the layout without a lock, and come to the OSTs with it at any time. So the OSTs
//! close the objects first: whoever had something cached has written it by then, and if anybody
//! wrote since the copy began, nothing is done. Then the namespace changes, durably, before anybody
//! may see it: what was written to the new objects must not be lost with the change. Who met a
//! closed object asks here where the file's bytes are ([`Request::LayoutMoved`]).
//!
//! Nothing of this is logged. If the MDT dies between the close and the commit, or an OST does not
//! answer, objects of a file that keeps them stay closed: whoever meets one says so, and they are
//! opened again. It is the MDT alone that decides: an object that is in the file's layout while
//! nobody is moving it is to be open.
//!
//! Invariants:
//! * a file is moved by one at a time ([`Moving`]); while it is, nobody has its objects opened
//!   again;
//! * it goes on when the client that asked for it goes: half of it is not left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_namespace::{ClientId, Done, Taking};
use sheen_rpc::{Export, Response};
use sheen_wire::mds::{Answer, Call, Reply, Request};
use sheen_wire::ost::{self, PARTS_MAX};
use sheen_wire::{Errno, Fid, Result};
use tokio::sync::Notify;
use tracing::warn;

use crate::commit::Goal;
use crate::env::MdtEnv;
use crate::locks::Change;
use crate::mdt::{Core, Mdt};

/// How long an OST may take to close a file's objects: twice what it lets others keep their locks.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(40);
/// How long to open them again.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Files whose layouts are being changed for others.
#[derive(Default)]
pub(crate) struct Moving {
    files: Mutex<BTreeSet<Fid>>,
    ended: Notify,
}

/// One of them, until it is dropped.
pub(crate) struct Mover<'a> {
    of: &'a Moving,
    fid: Fid,
}

impl Moving {
    /// `None`: somebody is at it.
    fn begin(&self, fid: Fid) -> Option<Mover<'_>> {
        let is_first = self.files.lock().insert(fid);
        is_first.then(|| Mover { of: self, fid })
    }

    /// As [`Moving::begin`], when nobody is.
    pub(crate) async fn turn(&self, fid: Fid) -> Mover<'_> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(mover) = self.begin(fid) {
                return mover;
            }
            ended.await;
        }
    }
}

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        self.of.files.lock().remove(&self.fid);
        self.of.ended.notify_waiters();
    }
}

impl Mdt {
    /// Answers a [`Request::TakeLayout`].
    pub(crate) async fn take_layout(&self, export: &Arc<Export>, call: &Call) -> Result<Response<Answer>> {
        let mdt = self.me.upgrade().ok_or(Errno::ESHUTDOWN)?;
        let (export, request) = (export.clone(), call.request.clone());
        let task = self.rt.spawn("mdt-migrate", async move { mdt.take(&export, &request).await });
        let transno = task.await.unwrap_or(Err(Errno::ESHUTDOWN))?;
        Ok(Response::with_transno(Reply::Ok.into(), transno))
    }

    async fn take(&self, export: &Export, request: &Request) -> Result<u64> {
        let Request::TakeLayout { fid, versions, group, .. } = request else { return Err(Errno::EPROTO) };
        let _mover = self.moving.begin(*fid).ok_or(Errno::EBUSY)?;
        self.commits.admit().await?;
        let taking = {
            let mut core = self.core.lock();
            let taking = core.ns.begin_take(request);
            self.touched(&core);
            taking?
        };
        let taken = self.take_begun(export, request, &taking, versions, *group).await;
        self.core.lock().ns.end_take(*fid);
        if !taking.renamed.is_empty() {
            self.destroyer.rescan();
        }
        match taken {
            Ok((transno, change)) => {
                change.revoke_when(self.durable(transno)).await?;
                Ok(transno)
            }
            Err(errno) => {
                let renamed = taking.renamed.iter().map(|name| (name.ost, name.old));
                self.reopen(&taking.leaving.iter().copied().chain(renamed).collect::<Vec<_>>()).await;
                // MOVED: left closed by one before, and open now.
                Err(if errno == Errno::MOVED { Errno::EBUSY } else { errno })
            }
        }
    }

    async fn take_begun(
        &self,
        export: &Export,
        request: &Request,
        taking: &Taking,
        versions: &[(Fid, u64)],
        group: Option<u64>,
    ) -> Result<(u64, Change)> {
        self.close(&taking.leaving, versions, group).await?;
        let old: Vec<_> = taking.renamed.iter().map(|name| (name.ost, (name.old, None))).collect();
        self.each_ost(&old, CLOSE_TIMEOUT, |objects| ost::Request::Close { objects, group: None }).await?;
        let both: Vec<_> = taking.renamed.iter().map(|name| (name.ost, (name.old, name.new))).collect();
        self.each_ost(&both, CLOSE_TIMEOUT, |objects| ost::Request::Link { objects }).await?;
        self.execute_take(export, request).await
    }

    /// Before a [`Request::LayoutMoved`] is answered: nobody moves the file, and if its layout is
    /// this one still, its objects are open.
    pub(crate) async fn settle_layout(&self, fid: Fid, generation: u32) -> Result<()> {
        let _mover = self.moving.turn(fid).await;
        let layout = self.core.lock().ns.layout(fid)?;
        if let Some(layout) = layout.filter(|layout| layout.generation() == generation) {
            let objects: Vec<_> = layout.all_objects().map(|s| (s.ost, s.object)).collect();
            self.reopen(&objects).await;
        }
        Ok(())
    }

    /// Changes the namespace, when nobody else is changing one of the two files.
    pub(crate) async fn execute_take(&self, export: &Export, request: &Request) -> Result<(u64, Change)> {
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

    fn execute_take_now(&self, core: &mut Core, export: &Export, request: &Request) -> Result<(u64, Change)> {
        let Core { ns, placer, .. } = core;
        let mut env = MdtEnv { mdt: self, placer, now: self.rt.now(), wait: false };
        let done = ns.execute(ClientId(export.id()), request, &mut env);
        if let Some(fault) = if matches!(done, Err(Errno::EIO)) { ns.take_fault() } else { None } {
            self.store_failed(request.op(), &fault);
        }
        let Done { transno, touched, .. } = done?;
        let change = self.lasting_change(Some(export), &touched);
        self.touched(core);
        Ok((transno, change))
    }

    /// Ready when a change is durable. A store that fails is tried again, unless the MDT stops.
    /// With a damaged one this waits for that end: nobody is to use a layout that the next life of
    /// the MDT does not know.
    ///
    /// # Errors
    /// EIO, ESHUTDOWN: the MDT stops and cannot commit it.
    pub(crate) async fn durable(&self, transno: u64) -> Result<()> {
        loop {
            match self.commits.reach(Goal::Transno(transno)).await {
                Err(Errno::EIO) if !self.locks.is_going() => {
                    if self.commits.is_damaged() {
                        self.locks.gone().await;
                    }
                }
                reached => return reached,
            }
        }
    }

    /// Has the OSTs close objects of these versions.
    async fn close(&self, objects: &[(u32, Fid)], versions: &[(Fid, u64)], group: Option<u64>) -> Result<()> {
        let versions: BTreeMap<Fid, u64> = versions.iter().copied().collect();
        let request = |objects: Vec<Fid>| {
            let version = |object: Fid| Some((object, Some(*versions.get(&object)?)));
            ost::Request::Close { objects: objects.into_iter().filter_map(version).collect(), group }
        };
        self.each_ost(objects, CLOSE_TIMEOUT, request).await
    }

    /// Has them open objects again. Those that cannot be reached now are, when somebody misses
    /// them.
    pub(crate) async fn reopen(&self, objects: &[(u32, Fid)]) {
        let request = |objects| ost::Request::Reopen { objects };
        if let Err(errno) = self.each_ost(objects, REOPEN_TIMEOUT, request).await {
            warn!("{}: objects that a migration or a swap closed are not open again yet: {errno}", self.name);
        }
    }

    /// Sends each OST of these objects requests, as many as it takes, all at once; the first error
    /// of any.
    pub(crate) async fn each_ost<T: Copy>(
        &self,
        objects: &[(u32, T)],
        timeout: Duration,
        request: impl Fn(Vec<T>) -> ost::Request,
    ) -> Result<()> {
        let mut per_ost: BTreeMap<u32, Vec<T>> = BTreeMap::new();
        for (ost, object) in objects {
            per_ost.entry(*ost).or_default().push(*object);
        }
        let mut tasks = Vec::new();
        let mut outcome = Ok(());
        for (ost, objects) in per_ost {
            match self.osts.connected(ost) {
                None => outcome = Err(Errno::EIO),
                Some(osp) => tasks.extend(objects.chunks(PARTS_MAX).map(|objects| {
                    let (rt, osp, request) = (self.rt.clone(), osp.clone(), request(objects.to_vec()));
                    self.rt.spawn("migrate", async move {
                        rt.timeout(timeout, osp.run(request)).await.unwrap_or(Err(Errno::ETIMEDOUT))
                    })
                })),
            }
        }
        for task in tasks {
            outcome = outcome.and(task.await.unwrap_or(Err(Errno::EIO)));
        }
        outcome
    }
}
