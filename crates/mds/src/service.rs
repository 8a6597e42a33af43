//! The MDT as a service: executes requests one after another, inline, and replies before they are durable.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use sheen_layout::{Count, Ost, Placer, Spec, Wanted, resolve};
use sheen_namespace::{Allocation, Ask, ClientId, Done, Env, NEED_COMMIT};
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_rt::Instant;
use sheen_wire::ast::Grant;
use sheen_wire::mds::{Answer, Call, Reply, Request};
use sheen_wire::{Attr, Bulk, Errno, Fid, Mds, Result, StatFs, Time};
use tracing::error;

use crate::commit::Goal;
use crate::locks::{self, Change};
use crate::mdt::{Core, Mdt};
use crate::osts::{PoolOsts, SETTLE};

/// Disk space that one more inode with its entry takes, in bytes, for the number of free inodes: an inode and an entry are about
/// 300 bytes, doubled by half-full pages of the B-tree, and doubled again for the pages that a commit copies.
const BYTES_PER_INODE: u64 = 1024;

/// What `md_stats` counts, in the order in which Lustre prints them.
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
    ("fid2path", "usecs"),
    ("parents", "usecs"),
    ("reopen", "usecs"),
    ("ldlm_enqueue", "usecs"),
    ("ldlm_cancel", "usecs"),
    ("getattr_bulk", "usecs"),
];

impl Service<Mds> for Mdt {
    fn call<'a>(&'a self, export: &'a Arc<Export>, call: Call, _: Bulk) -> BoxFuture<'a, Result<Response<Answer>>> {
        Box::pin(async move {
            let began = self.rt.now();
            self.locks.server.cancel(export, &call.cancels);
            self.locks.server.convert(export, &call.converts);
            let result = match &call.request {
                Request::Cancel => Ok(Answer::from(Reply::Ok).into()),
                Request::Enqueue(want) => self.program_lock(export, want).map(Response::from),
                _ => self.execute(export, &call).await,
            };
            self.stats.record(call.request.op(), self.rt.now().since(began).as_micros() as u64);
            result
        })
    }

    fn disconnected(&self, export: &Export) {
        let mut core = self.core.lock();
        core.exports.remove(&export.id());
        if !self.stopped.load(Relaxed) {
            core.ns.disconnect(ClientId(export.id()));
            self.touched(&core);
        }
        drop(core);
        self.locks.server.disconnected(export);
    }

    fn reconnected(&self, export: &Arc<Export>) {
        self.locks.server.reconnected(export);
    }

    fn last_committed(&self) -> u64 {
        self.commits.last_committed()
    }

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A sync waits for the disk; all else takes microseconds.
    fn inline(&self, call: &Call) -> bool {
        !matches!(call.request, Request::Sync { .. })
    }
}

/// A request that was executed, whatever its result.
struct Executed {
    result: Result<Done>,
    grants: Vec<Grant>,
    /// Others keep what it changed: the reply waits until they have forgotten it.
    change: Option<Change>,
    /// See [`Answer::dir`].
    dir: Option<Attr>,
}

/// Why a request was not executed.
enum Not {
    /// The client or the MDT went.
    Possible,
    /// To be tried again after this round of commits.
    BeforeRound(u64),
    /// To be tried again when more is known of the OSTs.
    WithoutOsts,
    /// To be tried again when nobody else is changing this inode.
    DuringChange(Fid),
}

impl Mdt {
    async fn execute(&self, export: &Arc<Export>, call: &Call) -> Result<Response<Answer>> {
        let Executed { result, grants, change, dir } = self.execute_once(export, call).await?;
        let no_more = match change {
            // Seldom, so in memory of its own, as below: the state of every request is moved there.
            Some(change) => Box::pin(change.revoke()).await,
            None => None,
        };
        if let (Ok(_), Request::Sync { fid }) = (&result, &call.request) {
            Box::pin(self.sync(*fid)).await?;
        }
        result.map(|Done { reply, transno, touched, .. }| {
            let gone = locks::gone(&touched).chain(no_more).collect();
            let touched =
                if call.request.takes_names() { touched.iter().map(|(fid, _)| *fid).collect() } else { Vec::new() };
            Response::with_transno(Answer { reply, grants, gone, dir, touched }, transno)
        })
    }

    async fn execute_once(&self, export: &Arc<Export>, call: &Call) -> Result<Executed> {
        // A client can always give up what it has.
        let gives_up = matches!(call.request, Request::Close { .. } | Request::Reopen { .. });
        let changes = call.request.modifies() && !gives_up;
        loop {
            if changes {
                self.commits.admit().await?;
            }
            match self.attempt(export, call) {
                Ok(executed) => return Ok(executed),
                Err(Not::Possible) => return Err(Errno::ESHUTDOWN),
                Err(Not::BeforeRound(round)) => self.commits.reach(Goal::Round(round)).await?,
                Err(Not::DuringChange(fid)) => self.locks.settled(fid).await,
                Err(Not::WithoutOsts) => {
                    if let Some(result) = Box::pin(self.attempt_with_osts(export, call)).await {
                        return result;
                    }
                }
            }
        }
    }

    /// Tries again, and waits for news of the OSTs if that does not do; `None`: to be tried once more.
    async fn attempt_with_osts(&self, export: &Arc<Export>, call: &Call) -> Option<Result<Executed>> {
        // Listen first: news that came before the attempt are in it, those after it end the wait.
        let mut changed = std::pin::pin!(self.osts.changed());
        changed.as_mut().enable();
        match self.attempt(export, call) {
            Ok(executed) => return Some(Ok(executed)),
            Err(Not::Possible) => return Some(Err(Errno::ESHUTDOWN)),
            Err(Not::BeforeRound(_) | Not::DuringChange(_)) => {}
            Err(Not::WithoutOsts) => {
                let left = (self.started + SETTLE).since(self.rt.now());
                let _ = self.rt.timeout(left, changed).await;
            }
        }
        None
    }

    fn attempt(&self, export: &Arc<Export>, call: &Call) -> std::result::Result<Executed, Not> {
        let (now, request) = (self.rt.now(), &call.request);
        let mut core = self.core.lock();
        // With the lock held: whoever goes later is reported by `disconnected`, which closes what is opened here.
        if self.stopped.load(Relaxed) || export.is_gone() {
            return Err(Not::Possible);
        }
        if let Some(fid) = self.unsettled(&mut core, request) {
            return Err(Not::DuringChange(fid));
        }
        let client = ClientId(export.id());
        core.exports.insert(client.0);
        let Core { ns, placer, round, .. } = &mut *core;
        let next_round = *round + 1;
        let mut env = MdtEnv { mdt: self, placer, now, wait: false };
        let mut result = ns.execute(client, request, &mut env);
        let wait = env.wait;
        match &result {
            Err(NEED_COMMIT) => {
                self.touched(&core);
                return Err(Not::BeforeRound(next_round));
            }
            Err(_) if wait => {
                self.touched(&core);
                return Err(Not::WithoutOsts);
            }
            _ => {}
        }
        let fault = if matches!(result, Err(Errno::EIO)) { ns.take_fault() } else { None };
        let change = result.as_ref().ok().and_then(|done| self.change(export, &done.touched, done.nameless));
        let dir = result.as_ref().ok().and_then(|done| core.ns.changed_dir(request, done));
        let grants = self.grants(export, call, &mut result);
        if core.ns.has_replaced() {
            self.replaced.notify_one();
        }
        self.touched(&core);
        drop(core);
        if let Some(fault) = fault {
            error!("{}: {} failed: {fault}", self.name, request.op());
        }
        Ok(Executed { result, grants, change, dir })
    }
}

/// What an operation needs from around it.
struct MdtEnv<'a> {
    mdt: &'a Mdt,
    placer: &'a mut Placer,
    now: Instant,
    /// Objects could not be placed, or not as many as asked for, and it may be otherwise when more is known of the OSTs.
    wait: bool,
}

impl Env for MdtEnv<'_> {
    fn now(&self) -> Time {
        self.mdt.rt.wall()
    }

    fn allocate(&mut self, ask: &Ask) -> Result<Allocation> {
        let tunables = &self.mdt.tunables;
        let mut wanted = resolve(&ask.own, ask.dir.as_ref(), ask.root.as_ref(), &tunables.defaults());
        tunables.place(&mut wanted);
        let osts = &self.mdt.osts;
        osts.used(self.now);
        let starting = self.now.since(self.mdt.started) < SETTLE;
        if starting && wanted.pool.is_some() && !osts.known() {
            self.wait = true;
            return Err(Errno::ENOSPC);
        }
        let pool = self.mdt.pool(&ask.own, &mut wanted)?;
        let view = pool.as_ref().map_or_else(|| osts.view(), |pool| Arc::new(pool.of(&osts.view())));
        if starting && is_short(&wanted, &view) && !osts.heard_of_all() {
            self.wait = true;
            return Err(Errno::ENOSPC);
        }
        let limits = tunables.limits();
        let placed = match &pool {
            Some(pool) => pool.placer.lock().place(&wanted, &view, &limits),
            None => self.placer.place(&wanted, &view, &limits),
        };
        self.wait = starting && placed.is_err() && !osts.settled();
        Ok(Allocation { stripe_size: wanted.stripe_size, pool: wanted.pool, osts: placed? })
    }

    fn check(&self, spec: &Spec) -> Result<()> {
        let osts = &self.mdt.osts;
        let view = match &spec.pool {
            Some(name) => Arc::new(osts.pool(name.as_str()).ok_or(Errno::EINVAL)?.of(&osts.view())),
            None => osts.view(),
        };
        let exists = |index: &u32| view.binary_search_by_key(index, |o| o.index).is_ok();
        if spec.start.iter().chain(&spec.osts).all(exists) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn statfs(&self, files: u64) -> StatFs {
        space(self.mdt, files)
    }

    fn may_be_open(&self, fid: Fid) -> bool {
        self.mdt.locks.may_be_open(fid)
    }
}

impl Mdt {
    /// The pool to place in. One that the user named himself must exist and have OSTs (EINVAL).
    ///
    /// An inherited one gives way: a default outlives its pool, and then the file is made on any OSTs and names no pool, as Lustre's; so
    /// it does where exact OSTs are asked for that are not in the pool. An OST to begin with leads out of a pool only if the user
    /// himself named it.
    fn pool(&self, own: &Spec, wanted: &mut Wanted) -> Result<Option<Arc<PoolOsts>>> {
        let Some(name) = &wanted.pool else { return Ok(None) };
        let inherited = own.pool.is_none();
        let pool = match self.osts.pool(name.as_str()) {
            None if !inherited => return Err(Errno::EINVAL),
            pool => pool,
        };
        let has = |index: &u32| pool.as_ref().is_some_and(|pool| pool.has(*index));
        if own.start.is_none() && pool.is_some() {
            wanted.start = wanted.start.filter(has);
        }
        if inherited && (pool.is_none() || !wanted.start.iter().chain(&wanted.osts).all(has)) {
            wanted.pool = None;
            return Ok(None);
        }
        Ok(pool)
    }
}

/// Whether a file would have more stripes if all OSTs were active.
fn is_short(wanted: &Wanted, osts: &[Ost]) -> bool {
    let distinct = match wanted.count {
        _ if !wanted.osts.is_empty() => return false,
        Count::Stripes(_) if wanted.overstripe => return false,
        Count::Stripes(n) => osts.len().min(usize::from(n)),
        Count::All | Count::PerOst(_) => osts.len(),
    };
    osts.iter().filter(|o| o.active).count() < distinct
}

/// Space and inodes of the MDT.
pub(crate) fn statfs(mdt: &Mdt) -> StatFs {
    let files = mdt.core.lock().ns.files();
    space(mdt, files)
}

fn space(mdt: &Mdt, files: u64) -> StatFs {
    let disk = mdt.share.of(mdt.rt.disk().statvfs(&mdt.config.dir).unwrap_or_default());
    let free = disk.bavail.saturating_mul(u64::from(disk.bsize)) / BYTES_PER_INODE;
    StatFs { files: files.saturating_add(free), ffree: free, ..disk }
}
