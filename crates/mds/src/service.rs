//! The MDT as a service: executes requests one after another, inline, and replies before they are durable.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use sheen_layout::{Count, Ost, Placer, Spec, Wanted, resolve};
use sheen_namespace::{Allocation, Ask, ClientId, Done, Env, NEED_COMMIT};
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_rt::Instant;
use sheen_wire::mds::{Reply, Request};
use sheen_wire::{Bulk, Errno, Mds, Result, StatFs, Time};
use tracing::error;

use crate::commit::Goal;
use crate::mdt::{Core, Mdt};
use crate::osts::SETTLE;

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
];

impl Service<Mds> for Mdt {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: Request,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<Reply>>> {
        Box::pin(async move {
            let began = self.rt.now();
            let result = match &request {
                request @ Request::Sync { fid } => match self.execute(export, request).await {
                    Ok(done) => self.sync(*fid).await.map(|()| done),
                    failed => failed,
                },
                request => self.execute(export, request).await,
            };
            self.stats.record(request.op(), self.rt.now().since(began).as_micros() as u64);
            result.map(|done| Response::with_transno(done.reply, done.transno))
        })
    }

    fn disconnected(&self, export: &Export) {
        let mut core = self.core.lock();
        core.exports.remove(&export.id());
        if !self.stopped.load(Relaxed) {
            core.ns.disconnect(ClientId(export.id()));
            self.touched(&core);
        }
    }

    fn last_committed(&self) -> u64 {
        self.commits.last_committed()
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A sync waits for the disk; all else takes microseconds.
    fn inline(&self, request: &Request) -> bool {
        !matches!(request, Request::Sync { .. })
    }
}

/// What became of one attempt to execute a request.
enum Attempt {
    Done(Result<Done>),
    /// Again after this round of commits.
    AfterRound(u64),
    /// Again when more is known of the OSTs.
    AfterOsts,
}

impl Mdt {
    async fn execute(&self, export: &Export, request: &Request) -> Result<Done> {
        // A client can always give up what it has.
        let changes = request.modifies() && !matches!(request, Request::Close { .. } | Request::Reopen { .. });
        loop {
            if changes {
                self.commits.admit().await?;
            }
            match self.attempt(export, request) {
                Attempt::Done(result) => return result,
                Attempt::AfterRound(round) => self.commits.reach(Goal::Round(round)).await?,
                Attempt::AfterOsts => {
                    if let Some(result) = self.attempt_with_osts(export, request).await {
                        return result;
                    }
                }
            }
        }
    }

    /// Tries again, and waits for news of the OSTs if that does not do; `None`: to be tried once more.
    async fn attempt_with_osts(&self, export: &Export, request: &Request) -> Option<Result<Done>> {
        // Listen first: news that came before the attempt are in it, those after it end the wait.
        let mut changed = std::pin::pin!(self.osts.changed());
        changed.as_mut().enable();
        match self.attempt(export, request) {
            Attempt::Done(result) => return Some(result),
            Attempt::AfterRound(_) => {}
            Attempt::AfterOsts => {
                let left = (self.started + SETTLE).since(self.rt.now());
                let _ = self.rt.timeout(left, changed).await;
            }
        }
        None
    }

    fn attempt(&self, export: &Export, request: &Request) -> Attempt {
        let now = self.rt.now();
        let mut core = self.core.lock();
        if self.stopped.load(Relaxed) {
            return Attempt::Done(Err(Errno::ESHUTDOWN));
        }
        // With the lock held: whoever goes later is reported by `disconnected`, which closes what is opened here.
        if export.is_gone() {
            return Attempt::Done(Err(Errno::ESHUTDOWN));
        }
        let client = ClientId(export.id());
        core.exports.insert(client.0);
        let Core { ns, placer, round, .. } = &mut *core;
        let next_round = *round + 1;
        let mut env = MdtEnv { mdt: self, placer, now, wait: false };
        let result = ns.execute(client, request, &mut env);
        let wait = env.wait;
        let fault = if matches!(result, Err(Errno::EIO)) { ns.take_fault() } else { None };
        self.touched(&core);
        drop(core);
        if let Some(fault) = fault {
            error!("{}: {} failed: {fault}", self.name, request.op());
        }
        match result {
            Err(NEED_COMMIT) => Attempt::AfterRound(next_round),
            Err(_) if wait => Attempt::AfterOsts,
            result => Attempt::Done(result),
        }
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
        if wanted.pool.is_some() {
            // There are no pools yet, so none of that name.
            return Err(Errno::EINVAL);
        }
        self.mdt.osts.used(self.now);
        let (osts, view) = (&self.mdt.osts, self.mdt.osts.view());
        let starting = self.now.since(self.mdt.started) < SETTLE;
        if starting && is_short(&wanted, &view) && !osts.heard_of_all() {
            self.wait = true;
            return Err(Errno::ENOSPC);
        }
        let placed = self.placer.place(&wanted, &view, &tunables.limits());
        self.wait = starting && placed.is_err() && !osts.settled();
        Ok(Allocation { stripe_size: wanted.stripe_size, pool: wanted.pool, osts: placed? })
    }

    fn check(&self, spec: &Spec) -> Result<()> {
        let view = self.mdt.osts.view();
        let exists = |index: &u32| view.binary_search_by_key(index, |o| o.index).is_ok();
        let fine = spec.pool.is_none() && spec.start.iter().chain(&spec.osts).all(exists);
        if fine { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn statfs(&self, files: u64) -> StatFs {
        space(self.mdt, files)
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
