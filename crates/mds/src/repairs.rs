//! Repairs on a running MDT, of what its check has found ([`crate::lfsck`]). Each one is an
//! operation of the namespace ([`sheen_namespace::Namespace::repair`]), under the locks that other
//! changes take.
//!
//! Invariants:
//! * No client sees a repair before it is durable. Otherwise the client could name the repaired
//!   file in a change, and replay that to an MDT that has lost the repair.
//! * All repairs are durable when they have ended. The next check reads a snapshot of the last
//!   commit, and would find the same problems again.
//! * The core lock is held for one step at a time, which counts a bounded number of entries.
//! * No repair waits without a bound for an inode that requests change all the time. The others are
//!   repaired meanwhile.
//! * While the store fails, only `/lost+found` cannot be used. So that directory is made by itself.

use std::collections::{BTreeSet, VecDeque};
use std::future::ready;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::{CountBudget, Done, OpError, Place, Problem};
use sheen_wire::{Errno, Fid, Result, fid::ROOT};

use crate::env::MdtEnv;
use crate::locks::LockedChange;
use crate::mdt::Mdt;
use crate::state::commits::Goal;
use crate::state::core::Core;

/// Problems repaired in one step: with the core lock held, and in one commit.
const AT_ONCE: usize = 64;
/// Maximum number of times that a repair is tried while requests change its inodes.
const ATTEMPTS_MAX: u32 = 4;
/// Maximum time between two attempts.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// The repairs of one step.
struct Step {
    outcomes: Vec<Result<()>>,
    transno: u64,
    change: LockedChange,
}

/// The directory `/lost+found`, and a sequence of FIDs for new files.
#[derive(Clone, Copy)]
struct LostFound {
    dir: Fid,
    sequence: u64,
}

impl LostFound {
    /// Returns the place for what the n-th repair of a step finds. The first FID is that of the
    /// directory.
    fn place(self, n: usize) -> Place {
        Place { dir: self.dir, fid: Fid::new(self.sequence, n as u32 + 2) }
    }
}

/// A problem, and the place for the outcome of its repair.
type Unrepaired<'a> = (&'a Problem, &'a mut Option<Result<()>>);

impl Mdt {
    /// Repairs problems of one stage. Returns the outcome of each. ENOSPC: the MDT is full, or has
    /// no FIDs left. EROFS, EIO: the store cannot be written. EBUSY: requests change the inodes at
    /// each attempt. ECANCELED: the check is to end. ESHUTDOWN: the MDT stops. Others as
    /// [`sheen_namespace::Namespace::repair`].
    pub(crate) async fn repair(&self, problems: &[&Problem]) -> Vec<Result<()>> {
        let mut outcomes = vec![None; problems.len()];
        let unrepaired = problems.iter().copied().zip(&mut outcomes).collect();
        let missing = self.repair_all(unrepaired).await.err().unwrap_or(Errno::EBUSY);
        outcomes.into_iter().map(|outcome| outcome.unwrap_or(Err(missing))).collect()
    }

    /// Repairs problems step by step, and notes the outcomes. Those whose inodes are changing wait
    /// for the next attempt; after the last one they have no outcome. Fails if no further repair
    /// is possible.
    async fn repair_all(&self, mut left: VecDeque<Unrepaired<'_>>) -> Result<()> {
        let mut changing = BTreeSet::new();
        for _ in 0..ATTEMPTS_MAX {
            self.wait_settled(std::mem::take(&mut changing)).await;
            let mut busy = VecDeque::new();
            while !left.is_empty() {
                let step: Vec<Unrepaired<'_>> = left.drain(..left.len().min(AT_ONCE)).collect();
                let problems: Vec<&Problem> = step.iter().map(|(problem, _)| *problem).collect();
                let outcomes = self.repair_some(&problems, &mut changing).await?;
                for ((problem, place), outcome) in step.into_iter().zip(outcomes) {
                    match outcome {
                        // The first repair of a step that counts never gets EAGAIN.
                        Err(Errno::EAGAIN) => left.push_back((problem, place)),
                        Err(Errno::EBUSY) => busy.push_back((problem, place)),
                        outcome => *place = Some(outcome),
                    }
                }
            }
            left = busy;
            if left.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes one step. EBUSY: requests are changing inodes of the problem, which are added to
    /// `changing`. EAGAIN: repair it in a later step.
    async fn repair_some(&self, problems: &[&Problem], changing: &mut BTreeSet<Fid>) -> Result<Vec<Result<()>>> {
        let lost_found = match problems.iter().any(|problem| problem.needs_lost_found()) {
            true => match self.lost_found().await {
                Err(Errno::EBUSY) => return Ok(vec![Err(Errno::EBUSY); problems.len()]),
                found => Some(found?),
            },
            false => None,
        };
        let repair = |core: &mut Core| Ok(self.repair_now(core, problems, lost_found, changing));
        let Step { outcomes, transno, change } = self.with_core(repair).await?;
        change.revoke_when(self.durable(transno), ready(())).await?;
        Ok(outcomes)
    }

    fn repair_now(
        &self,
        core: &mut Core,
        problems: &[&Problem],
        lost_found: Option<LostFound>,
        changing: &mut BTreeSet<Fid>,
    ) -> Step {
        let Core { ns, placer, .. } = core;
        let mut env =
            MdtEnv { mdt: self, placer, now: self.rt.now(), waited: Duration::ZERO, client: None, wait: false };
        let (mut outcomes, mut transno, mut invalidations) = (Vec::new(), 0, Vec::new());
        let mut budget = CountBudget::default();
        for (n, problem) in problems.iter().enumerate() {
            let place = lost_found.filter(|_| problem.needs_lost_found()).map(|at| at.place(n));
            let files = problem.files().chain(place.map(|at| at.dir));
            let busy: Vec<Fid> = files.filter(|fid| self.locks.is_changing(*fid)).collect();
            if !busy.is_empty() {
                changing.extend(busy);
                outcomes.push(Err(Errno::EBUSY));
                continue;
            }
            let done = ns.repair(problem, place, &mut budget, &mut env);
            outcomes.push(done.map(|done| {
                transno = transno.max(done.transno);
                invalidations.extend(done.invalidations);
            }));
        }
        Step { outcomes, transno, change: self.lasting_change(None, &invalidations) }
    }

    /// Returns the directory `/lost+found`, which exists and is durable. EBUSY: requests change the
    /// root directory at each attempt.
    async fn lost_found(&self) -> Result<LostFound> {
        let sequence = self.own_sequence().await?;
        let new = Fid::new(sequence, 1);
        let make = |core: &mut Core| {
            if let Some(known) = core.ns.lost_found()? {
                return Ok((known, None));
            }
            let Core { ns, placer, .. } = core;
            let mut env =
                MdtEnv { mdt: self, placer, now: self.rt.now(), waited: Duration::ZERO, wait: false, client: None };
            let Done { transno, invalidations, .. } = ns.make_lost_found(new, &mut env)?;
            Ok((new, Some((transno, self.lasting_change(None, &invalidations)))))
        };
        let (dir, made) = self.when_settled(ROOT, make).await?;
        if let Some((transno, change)) = made {
            change.revoke().await;
            self.commits.reach(Goal::Transno(transno)).await?;
        }
        Ok(LostFound { dir, sequence })
    }

    /// Runs `work` with the core lock held, when no request is changing this inode. EBUSY: there is
    /// one at each attempt.
    async fn when_settled<T>(&self, fid: Fid, mut work: impl FnMut(&mut Core) -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            let attempt = |core: &mut Core| match self.locks.is_changing(fid) {
                true => Ok(None),
                false => work(core).map(Some),
            };
            if let Some(done) = self.with_core(attempt).await? {
                return Ok(done);
            }
            self.wait_settled(BTreeSet::from([fid])).await;
        }
        Err(Errno::EBUSY)
    }

    /// Waits until the changes of these inodes have ended that are under way, at most
    /// [`SETTLE_MAX`]. Other changes may have begun then.
    async fn wait_settled(&self, changing: BTreeSet<Fid>) {
        let settled = async {
            for fid in changing {
                self.locks.settled(fid).await;
            }
        };
        // The caller checks again.
        let _ = self.rt.timeout(SETTLE_MAX, settled).await;
    }

    /// Runs `work` with the core lock held, once the store takes changes.
    async fn with_core<T>(&self, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        self.commits.admit().await?;
        self.check_space()?;
        let mut core = self.core.lock();
        if self.stopped.load(Relaxed) {
            return Err(Errno::ESHUTDOWN);
        }
        if self.lfsck.stop.load(Relaxed) {
            return Err(Errno::ECANCELED);
        }
        let done = work(&mut core);
        if let Some(fault) = core.ns.take_fault() {
            self.store_failed("lfsck", &fault);
        }
        self.wake_committer(&core);
        done
    }

    /// Takes a sequence of FIDs for files that the MDT itself makes.
    async fn own_sequence(&self) -> Result<u64> {
        loop {
            let round = {
                let mut core = self.core.lock();
                if self.stopped.load(Relaxed) {
                    return Err(Errno::ESHUTDOWN);
                }
                let taken = core.ns.take_sequence();
                self.wake_committer(&core);
                match taken {
                    Ok(sequence) => return Ok(sequence),
                    Err(OpError::Errno(errno)) => return Err(errno),
                    Err(OpError::CommitFirst) => core.round + 1,
                }
            };
            self.commits.reach(Goal::Round(round)).await?;
        }
    }
}
