//! The MDT as a service: executes requests one after another and replies before the changes are
//! durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sheen_layout::{Component, Layout};
use sheen_namespace::{ClientId, Done, OpError};
use sheen_rpc::{BoxFuture, Export, Origin, Response, Service};
use sheen_rt::{Instant, operation};
use sheen_wire::ast::Grant;
use sheen_wire::auth::Role;
use sheen_wire::mds::{Answer, Call, Change, FEATURE_DATA, INLINE_DOM_BYTES_MAX, Reply, Request, flags};
use sheen_wire::nodemap::Rules;
use sheen_wire::{Attr, Bulk, Errno, Fid, Mds, Result, mirror, quota};

use crate::env::MdtEnv;
use crate::jobs;
use crate::locks::{self, LockedChange};
use crate::mdt::Mdt;
use crate::state::commits::Goal;
use crate::state::core::Core;
use crate::state::osp::STATFS_TIMEOUT;
use crate::state::osts::SETTLE;
use crate::state::reserve;

/// Number of checks before an open fails with ETXTBSY: it is for writing while another client
/// executes the file, or for execution while another client writes it. The MDT checks repeatedly,
/// because a client may not have reported yet that it has stopped.
const BUSY_CHECKS: u32 = 10;
/// Pause between two such checks.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Operations that `md_stats` counts, in the order in which Lustre prints them.
pub(crate) const STATS: &[(&str, &str)] = &[
    ("open", "usecs"),
    ("create", "usecs"),
    ("close", "usecs"),
    ("mknod", "usecs"),
    ("link", "usecs"),
    ("unlink", "usecs"),
    ("mkdir", "usecs"),
    ("rmdir", "usecs"),
    ("rename", "usecs"),
    ("getattr", "usecs"),
    ("setattr", "usecs"),
    ("getxattr", "usecs"),
    ("setxattr", "usecs"),
    ("statfs", "usecs"),
    ("sync", "usecs"),
    ("lookup", "usecs"),
    ("access", "usecs"),
    ("symlink", "usecs"),
    ("tmpfile", "usecs"),
    ("readlink", "usecs"),
    ("readdir", "usecs"),
    ("listxattr", "usecs"),
    ("removexattr", "usecs"),
    ("alloc_seq", "usecs"),
    ("root", "usecs"),
    ("fid2path", "usecs"),
    ("parents", "usecs"),
    ("reopen", "usecs"),
    ("ldlm_enqueue", "usecs"),
    ("ldlm_cancel", "usecs"),
    ("layout_intent", "usecs"),
    ("take_layout", "usecs"),
    ("layout_moved", "usecs"),
    ("swap_layouts", "usecs"),
    ("replay", "usecs"),
    ("adopt_layouts", "usecs"),
    ("relock", "usecs"),
    ("recovered", "usecs"),
    ("own_sequences", "usecs"),
    ("capabilities", "usecs"),
    ("changelog", "usecs"),
    ("changelog_clear", "usecs"),
];

impl Service<Mds> for Mdt {
    fn call<'a>(&'a self, export: &'a Arc<Export>, call: Call, _: Bulk) -> BoxFuture<'a, Result<Response<Answer>>> {
        Box::pin(self.serve(export, None, call))
    }

    fn call_once<'a>(
        &'a self,
        export: &'a Arc<Export>,
        origin: Origin,
        call: Call,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<Answer>>> {
        Box::pin(self.serve(export, Some(origin), call))
    }

    fn disconnected(&self, export: &Export) {
        if export.is_evicted() && !self.stopped.load(Relaxed) {
            // Before its locks are dropped: the changes that wait for them wait for the fence, too.
            self.fence(export.client());
        }
        let mut core = self.core.lock();
        core.exports.remove(&export.id());
        core.listed.remove(&export.id());
        core.changelog_readers.remove(export);
        if !self.stopped.load(Relaxed) {
            core.ns.disconnect(ClientId(export.id()));
            core.ns.forget_client(export.client());
            self.wake_committer(&core);
            // Otherwise an MDT that crashes in the next moment would wait for the client.
            self.commits.urgent.notify_one();
        }
        drop(core);
        self.sequences.lock().disconnected(export.id());
        self.recovery.window.lock().remove(export.client());
        self.recovery.notify();
        self.locks.server.disconnected(export);
        self.export_stats.disconnected(export);
    }

    fn reconnected(&self, export: &Arc<Export>) {
        self.locks.server.reconnected(export);
    }

    /// In a recovery that of the start: a client whose connection breaks sends all its changes
    /// again, and gets the outcome of each.
    fn last_committed(&self) -> u64 {
        if self.recovery.is_ended() { self.commits.last_committed() } else { self.committed_before }
    }

    fn recovery_left(&self) -> Option<Duration> {
        self.recovery.left_max()
    }

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn features(&self) -> u64 {
        if self.config.holds_data { FEATURE_DATA } else { 0 }
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn reply_bytes(&self, call: &Call) -> usize {
        if call.inline_dom.is_some() { INLINE_DOM_BYTES_MAX as usize } else { 0 }
    }

    fn audits(&self, export: &Export) -> bool {
        match self.nodemaps.get().of(export.role().nodemap(), export.nid().ip()) {
            Rules::Of(nodemap) if *export.role() != Role::Server => nodemap.audit,
            _ => true,
        }
    }

    /// All requests but `Sync` run inline: a sync waits for the disk, most others take
    /// microseconds.
    fn inline(&self, call: &Call) -> bool {
        !matches!(call.request, Request::Sync { .. })
    }
}

/// The outcome of a request that was executed, successfully or not.
struct Executed {
    result: Result<Done>,
    grants: Vec<Grant>,
    /// Other clients cache what the request changed: the reply waits until they have cancelled.
    change: Option<LockedChange>,
    /// Clients must not see the change before this transno is durable.
    lasting: Option<u64>,
    /// The reply waits until this transno is durable.
    awaits: Option<u64>,
    /// See [`Answer::dir`].
    dir: Option<Attr>,
    /// See [`Answer::change`].
    decided: Option<Change>,
}

impl Executed {
    fn refused(errno: Errno) -> Executed {
        Executed {
            result: Err(errno),
            grants: Vec::new(),
            change: None,
            lasting: None,
            awaits: None,
            dir: None,
            decided: None,
        }
    }
}

/// Why a request was not executed.
enum NotExecuted {
    /// The client was disconnected or evicted, or the MDT stops.
    Shutdown,
    /// Retry after this round of commits.
    RetryAfterRound(u64),
    /// Retry when more is known of the OSTs.
    RetryWithOsts,
    /// Retry when no other request is changing this inode.
    RetryAfterChange(Fid),
    /// Retry for a short time: a client executes the file.
    RetryWhileExecuted,
}

impl Mdt {
    async fn serve(&self, export: &Arc<Export>, origin: Option<Origin>, mut call: Call) -> Result<Response<Answer>> {
        let began = self.rt.now();
        self.locks.server.cancel(export, &call.cancels);
        self.locks.server.convert(export, &call.converts);
        if !self.recovery.is_ended() {
            // Boxed, because it is rare.
            Box::pin(self.wait_for_recovery(&call.request)).await?;
        }
        if *export.role() != Role::Server {
            self.nodemaps.known().await;
        }
        self.confine(export, &mut call)?;
        let result = match &call.request {
            Request::Cancel => Ok(Answer::from(Reply::Ok).into()),
            Request::Replay { replays, first, last } => {
                Box::pin(self.replay(export, replays, *first, *last)).await.map(|reply| Answer::from(reply).into())
            }
            Request::AdoptLayouts { layouts } => {
                self.adopt_layouts(export, layouts).map(|reply| Answer::from(reply).into())
            }
            Request::Relock { locks } => self.relock(export, locks).map(|reply| Answer::from(reply).into()),
            Request::Root { path } => self.root_of(export, path).map(|reply| Answer::from(reply).into()),
            Request::Recovered => Ok(Answer::from(self.client_recovered(export)).into()),
            Request::OwnSequences { sequences } => {
                self.own_sequences(export, sequences).map(|reply| Answer::from(reply).into())
            }
            Request::Capabilities { fid, .. } => self
                .capabilities(export, *fid)
                .map(|capabilities| Answer::from(Reply::Capabilities(capabilities)).into()),
            Request::Changelog { cred, start, bytes_max, notify } => {
                self.changelog(export, cred, (*start, *bytes_max), *notify).map(|reply| Answer::from(reply).into())
            }
            Request::ChangelogClear { cred, user, end } => {
                self.clear_changelog(export, cred, *user, *end).map(|reply| Answer::from(reply).into())
            }
            Request::GetXattr { cred, name, .. } if name.starts_with(quota::QUERY_PREFIX.as_bytes()) => {
                Box::pin(self.answer_quota(cred, name)).await.map(|reply| Answer::from(reply).into())
            }
            Request::SetXattr { cred, name, value, .. } if name == quota::XATTR => {
                match self.check_quota_pool(cred, value) {
                    Ok(()) => self.execute(export, origin, began, &call).await,
                    Err(errno) => Err(errno),
                }
            }
            Request::Enqueue(want) => self.program_lock(export, want).map(Response::from),
            Request::SwapLayouts { .. } => Box::pin(self.swap_layouts(export, &call)).await,
            Request::TakeLayout { .. } => Box::pin(self.take_layout(export, &call)).await,
            Request::LayoutMoved { fid, generation } => match Box::pin(self.settle_layout(*fid, *generation)).await {
                Ok(()) => self.execute(export, origin, began, &call).await,
                Err(errno) => Err(errno),
            },
            Request::LayoutIntent { fid, .. } => {
                let grows = self.grows(*fid);
                Box::pin(self.osts.look(&self.rt, grows)).await;
                self.execute(export, origin, began, &call).await
            }
            _ => self.execute(export, origin, began, &call).await,
        };
        self.count(export, call.request.op(), began);
        let mut response: Response<Answer> = result?;
        self.show(export, &call.request, &mut response.body)?;
        Ok(response)
    }

    /// Counts a request that arrived at `began`, for the MDT, the client's host and the job that
    /// caused it.
    fn count(&self, export: &Export, op: &'static str, began: Instant) {
        let now = self.rt.now();
        let usecs = now.since(began).as_micros() as u64;
        if let Some(counter) = self.stats.index_of(op) {
            self.stats.record_at(counter, usecs);
            self.export_stats.record(export, counter, usecs);
        }
        let job = operation::job();
        if !job.is_none() {
            let counters = jobs::counters_of(op).into_iter().filter_map(|name| self.jobs.index_of(name));
            let samples = counters.map(|counter| (counter, usecs));
            self.jobs.record(job, samples, now.as_nanos(), || self.rt.wall());
        }
    }

    /// Returns whether a file has components that grow by themselves (SEL).
    fn grows(&self, fid: Fid) -> bool {
        let layout = self.core.lock().ns.layout(fid);
        layout.is_ok_and(|layout| layout.is_some_and(|l| l.components().iter().any(Component::is_extension)))
    }

    /// Executes a request that arrived at `began`.
    async fn execute(
        &self,
        export: &Arc<Export>,
        origin: Option<Origin>,
        began: Instant,
        call: &Call,
    ) -> Result<Response<Answer>> {
        let Executed { result, grants, change, lasting, awaits, dir, decided } =
            self.execute_once(export, origin, began, call).await?;
        let no_more = match (change, lasting) {
            // Boxed, as below, because it is rare: otherwise every request's future would be as
            // large.
            (Some(change), None) => Box::pin(change.revoke()).await,
            (Some(change), Some(transno)) => {
                Box::pin(self.revoke_when_durable(change, transno)).await?;
                None
            }
            (None, _) => None,
        };
        if let Some(transno) = awaits {
            // If the store fails, the change is made all the same, and a sync reports the failure.
            let _ = Box::pin(self.commits.reach(Goal::Transno(transno))).await;
        }
        match (&result, &call.request) {
            (Ok(_), Request::Sync { fid }) => Box::pin(self.sync(*fid)).await?,
            (Ok(done), Request::Open { fid, flags, .. }) if flags & flags::EXEC != 0 => {
                Box::pin(self.may_run(export, *fid, done)).await?;
            }
            _ => {}
        }
        result.map(|Done { reply, transno, invalidations, .. }| {
            let mut reply = self.give_sequence(export, reply);
            self.mark_tight(&mut reply);
            let (inline_dom, bulk) = self.inline_dom(export, call, &reply).unzip();
            let deleted = locks::deleted_inodes(&invalidations).chain(no_more).collect();
            let invalidations = if call.request.takes_names() {
                invalidations.iter().map(|(fid, _)| *fid).collect()
            } else {
                Vec::new()
            };
            let capabilities = match &reply {
                // If the store cannot be read, the client asks for them, and gets the error.
                Reply::Opened { entry, .. } => self.capabilities(export, entry.attr.fid).unwrap_or_default(),
                _ => Vec::new(),
            };
            let answer =
                Answer { reply, grants, deleted, dir, invalidations, inline_dom, change: decided, capabilities };
            Response { bulk: bulk.unwrap_or_default(), ..Response::with_transno(answer, transno) }
        })
    }

    /// Checks an open for execution after all other clients have reported their opens. Closes the
    /// file again if another client has it open for writing.
    ///
    /// # Errors
    /// ETXTBSY.
    async fn may_run(&self, export: &Export, fid: Fid, done: &Done) -> Result<()> {
        let client = ClientId(export.id());
        for _ in 0..BUSY_CHECKS {
            if !self.core.lock().ns.is_written_elsewhere(client, fid) {
                return Ok(());
            }
            self.rt.sleep(BUSY_PAUSE).await;
        }
        if let Reply::Opened { handle, .. } = done.reply {
            let mut core = self.core.lock();
            core.ns.refuse_run(client, fid, handle);
            self.wake_committer(&core);
        }
        Err(Errno::ETXTBSY)
    }

    /// Waits until a change is durable and all other clients have cancelled. Continues in a task if
    /// the requester disconnects.
    async fn revoke_when_durable(&self, change: LockedChange, transno: u64) -> Result<()> {
        let work = |mdt: Arc<Mdt>| async move { change.revoke_when(mdt.durable(transno), mdt.fences.settled()).await };
        self.run_to_end("mdt-mirrors", work).await
    }

    async fn execute_once(
        &self,
        export: &Arc<Export>,
        origin: Option<Origin>,
        began: Instant,
        call: &Call,
    ) -> Result<Executed> {
        // Always admitted: a client closes its files, or reports them before it cancels a lock.
        let ends_use = matches!(call.request, Request::Close { .. } | Request::Reopen { .. });
        let changes = call.request.modifies() && !ends_use && !leaves_store(&call.request);
        let mut checks = 0;
        loop {
            if changes {
                self.commits.admit().await?;
            }
            if reserve::adds(&call.request) {
                self.check_space()?;
            }
            match self.attempt(export, origin, began, call) {
                Ok(executed) => return Ok(executed),
                Err(NotExecuted::Shutdown) => return Err(Errno::ESHUTDOWN),
                Err(NotExecuted::RetryAfterRound(round)) => self.commits.reach(Goal::Round(round)).await?,
                Err(NotExecuted::RetryAfterChange(fid)) => self.locks.settled(fid).await,
                Err(NotExecuted::RetryWhileExecuted) if checks == BUSY_CHECKS => return Err(Errno::ETXTBSY),
                Err(NotExecuted::RetryWhileExecuted) => {
                    checks += 1;
                    self.rt.sleep(BUSY_PAUSE).await;
                }
                Err(NotExecuted::RetryWithOsts) => {
                    if let Some(result) = Box::pin(self.attempt_with_osts(export, origin, began, call)).await {
                        return result;
                    }
                }
            }
        }
    }

    /// Tries again. If that does not suffice, waits for news of the OSTs. `None`: the caller tries
    /// once more.
    async fn attempt_with_osts(
        &self,
        export: &Arc<Export>,
        origin: Option<Origin>,
        began: Instant,
        call: &Call,
    ) -> Option<Result<Executed>> {
        // Subscribe first: the attempt sees all earlier news, and later news ends the wait.
        let mut changed = std::pin::pin!(self.osts.changed());
        changed.as_mut().enable();
        match self.attempt(export, origin, began, call) {
            Ok(executed) => return Some(Ok(executed)),
            Err(NotExecuted::Shutdown) => return Some(Err(Errno::ESHUTDOWN)),
            Err(
                NotExecuted::RetryAfterRound(_) | NotExecuted::RetryAfterChange(_) | NotExecuted::RetryWhileExecuted,
            ) => {}
            Err(NotExecuted::RetryWithOsts) => {
                let now = self.rt.now();
                let settling = (self.recovery.ended_at() + SETTLE).since(now);
                // Once the MDT has settled, it waits only for an OST that reconnects, and for news
                // after it was idle. The statfs request under way decides whether the OST is back.
                let limit = if settling.is_zero() { STATFS_TIMEOUT } else { settling };
                let limit = self.osts.idle_wait(now).map_or(limit, |wait| wait.min(limit));
                let _ = self.rt.timeout(limit, changed).await;
            }
        }
        None
    }

    fn attempt(
        &self,
        export: &Arc<Export>,
        origin: Option<Origin>,
        began: Instant,
        call: &Call,
    ) -> std::result::Result<Executed, NotExecuted> {
        let (now, request) = (self.rt.now(), &call.request);
        let nodemaps = (*export.role() != Role::Server).then(|| self.nodemaps.get());
        let limits = nodemaps.as_deref().map_or(Ok(None), |all| self.limits_to_execute(all, export, request));
        let mut core = self.core.lock();
        // With the lock held: if the client disconnects later, `disconnected` closes what is opened
        // here.
        if self.stopped.load(Relaxed) || export.is_ended() {
            return Err(NotExecuted::Shutdown);
        }
        if let Some(fid) = self.unsettled(&mut core, request) {
            return Err(NotExecuted::RetryAfterChange(fid));
        }
        let client = ClientId(export.id());
        if core.exports.insert(client.0) {
            self.fences.returned(export.client());
        }
        if (request.modifies() || call.keep.is_some())
            && let Some(round) = self.list_client(&mut core, export)
        {
            self.wake_committer(&core);
            return Err(NotExecuted::RetryAfterRound(round));
        }
        let reached = limits.and_then(|limits| self.check_fids(&mut core, export, request, limits.as_ref()));
        if let Err(errno) = reached {
            return Ok(Executed::refused(errno));
        }
        let Core { ns, placer, round, .. } = &mut *core;
        let next_round = *round + 1;
        // A close says how long ago its files were read, as of its arrival. A recovery may have
        // delayed it since.
        let waited = if matches!(request, Request::Close { .. }) { now.since(began) } else { Duration::ZERO };
        let mut env = MdtEnv { mdt: self, placer, now, waited, client: Some(export), wait: false };
        let origin = origin.map(|Origin { xid, acknowledged }| sheen_namespace::Origin {
            client: export.client(),
            xid,
            acknowledged,
        });
        let survives = origin.is_some();
        let executed = ns.execute_from(client, origin, request, &mut env);
        let wait = env.wait;
        let mut result = match executed {
            Err(OpError::CommitFirst) => {
                self.wake_committer(&core);
                return Err(NotExecuted::RetryAfterRound(next_round));
            }
            Err(OpError::Errno(errno)) => Err(errno),
            Ok(done) => Ok(done),
        };
        match &result {
            Err(Errno::ETXTBSY) => return Err(NotExecuted::RetryWhileExecuted),
            Err(_) if wait => {
                self.wake_committer(&core);
                return Err(NotExecuted::RetryWithOsts);
            }
            _ => {}
        }
        let fault = if matches!(result, Err(Errno::EIO)) { ns.take_fault() } else { None };
        let lasting = result.as_ref().ok().filter(|done| chooses_mirrors(request, done)).map(|done| done.transno);
        let change = result.as_ref().ok().and_then(|done| match lasting {
            Some(_) => Some(self.lasting_change(exempt_client(export, request), &done.invalidations)),
            None => self.change(export, &done.invalidations, done.orphan),
        });
        let awaits = result.as_ref().ok().and_then(|done| self.awaits(&mut core, client, request, done));
        let dir = result.as_ref().ok().and_then(|done| core.ns.changed_dir(request, done));
        let decided =
            result.as_ref().ok().filter(|_| survives).and_then(|done| self.decided(&mut core, export, request, done));
        let grants = self.grants(&core, export, call, &mut result);
        if core.ns.has_replaced() {
            self.replaced.notify_one();
        }
        self.wake_committer(&core);
        drop(core);
        if let Some(fault) = fault {
            self.store_failed(request.op(), &fault);
        }
        Ok(Executed { result, grants, change, lasting, awaits, dir, decided })
    }

    /// Returns the transno for which the reply to a request waits: because an administrator wants
    /// it so, or because the client must not replay the request.
    fn awaits(&self, core: &mut Core, client: ClientId, request: &Request, done: &Done) -> Option<u64> {
        let is_on = |switch: &AtomicBool| switch.load(Relaxed);
        let other = if is_on(&self.tunables.commit_on_sharing) {
            core.authors.executed(client.0, request, done).filter(|transno| *transno > core.ns.last_committed())
        } else {
            None
        };
        let own = is_on(&self.tunables.sync_permission) && sets_permission(request) && done.transno > 0;
        let again = done.repeated && done.transno > core.ns.last_committed();
        other.max((own || again).then_some(done.transno))
    }
}

/// Whether a request changes owner, group or mode.
fn sets_permission(request: &Request) -> bool {
    matches!(request, Request::SetAttr { set, .. } if set.perm.is_some() || set.uid.is_some() || set.gid.is_some())
}

/// Returns whether a request that counts as a change leaves the store as it is: an open for
/// reading. A read-only MDT executes it.
fn leaves_store(request: &Request) -> bool {
    match request {
        Request::Open { flags, .. } => !flags::writes(*flags) && flags & flags::TRUNC == 0,
        _ => false,
    }
}

/// Returns whether a request changed the mirrors of a file. The next writes are not sent to the
/// mirrors that this change made stale. An MDT that lost the change in a restart would take these
/// mirrors for fresh. Therefore no client sees the change, or writes by it, before it is durable.
/// This is rare: it happens at the first write after a resync.
fn chooses_mirrors(request: &Request, done: &Done) -> bool {
    let is_mirrored = |layout: &[u8]| Layout::decode(layout).is_ok_and(|layout| layout.is_mirrored());
    match (request, &done.reply) {
        _ if done.transno == 0 => false,
        (Request::SetXattr { name, .. }, _) => name == mirror::XATTR,
        (Request::LayoutIntent { .. }, Reply::Entry(entry)) => entry.layout.as_ref().is_some_and(|l| is_mirrored(l)),
        _ => false,
    }
}

/// Returns the client whose own locks do not conflict with a change of mirrors. `None` for a tool
/// that changes mirrors: programs on the same client may be writing by the old layout, so that
/// client has to cancel as well.
fn exempt_client<'a>(export: &'a Export, request: &Request) -> Option<&'a Export> {
    if matches!(request, Request::SetXattr { .. }) { None } else { Some(export) }
}
