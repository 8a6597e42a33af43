//! Repairs on a running MDT, of what its check has found ([`crate::lfsck`]). Each one is an
//! operation of the namespace ([`sheen_namespace::Namespace::repair`]), under the locks that other
//! changes take.
//!
//! Invariants:
//! * No client sees a repair before it is durable. Otherwise the client could name the repaired
//!   file in a change, and replay that to an MDT that has lost the repair.
//! * All repairs are durable when they have ended. The next check reads a snapshot of the last
//!   commit, and would find the same problems again.
//! * While the store fails, only `/lost+found` cannot be used. So that directory is made by itself.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::atomic::Ordering::Relaxed;

use sheen_namespace::{Done, OpError, Place, Problem};
use sheen_wire::{Errno, Fid, Result, fid::ROOT};

use crate::env::MdtEnv;
use crate::locks::LockedChange;
use crate::mdt::Mdt;
use crate::state::commits::Goal;
use crate::state::core::Core;

/// Problems repaired in one step: with the core lock held, and in one commit.
const AT_ONCE: usize = 64;

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

impl Mdt {
    /// Repairs problems of one stage. Returns the outcome of each. ENOSPC: the MDT is full, or has
    /// no FIDs left. EROFS, EIO: the store cannot be written. ECANCELED: the check is to end.
    /// ESHUTDOWN: the MDT stops. Others as [`sheen_namespace::Namespace::repair`].
    pub(crate) async fn repair(&self, problems: &[&Problem]) -> Vec<Result<()>> {
        let mut outcomes = Vec::with_capacity(problems.len());
        for some in problems.chunks(AT_ONCE) {
            match self.repair_some(some).await {
                Ok(these) => outcomes.extend(these),
                Err(errno) => {
                    outcomes.resize(problems.len(), Err(errno));
                    break;
                }
            }
        }
        outcomes
    }

    async fn repair_some(&self, problems: &[&Problem]) -> Result<Vec<Result<()>>> {
        let lost_found = match problems.iter().any(|problem| problem.needs_lost_found()) {
            true => Some(self.lost_found().await?),
            false => None,
        };
        let files = problems.iter().flat_map(|problem| problem.files());
        let files: BTreeSet<Fid> = files.chain(lost_found.map(|at| at.dir)).collect();
        let repair = |core: &mut Core| Ok(self.repair_now(core, problems, lost_found));
        let Step { outcomes, transno, change } = self.when_settled(&files, repair).await?;
        change.revoke_when(self.durable(transno), ready(())).await?;
        Ok(outcomes)
    }

    fn repair_now(&self, core: &mut Core, problems: &[&Problem], lost_found: Option<LostFound>) -> Step {
        let Core { ns, placer, .. } = core;
        let mut env = MdtEnv { mdt: self, placer, now: self.rt.now(), client: None, wait: false };
        let (mut outcomes, mut transno, mut invalidations) = (Vec::new(), 0, Vec::new());
        for (n, problem) in problems.iter().enumerate() {
            let done = ns.repair(problem, lost_found.map(|at| at.place(n)), &mut env);
            outcomes.push(done.map(|done| {
                transno = transno.max(done.transno);
                invalidations.extend(done.invalidations);
            }));
        }
        Step { outcomes, transno, change: self.lasting_change(None, &invalidations) }
    }

    /// Returns the directory `/lost+found`, which exists and is durable.
    async fn lost_found(&self) -> Result<LostFound> {
        let sequence = self.own_sequence().await?;
        let new = Fid::new(sequence, 1);
        let make = |core: &mut Core| {
            if let Some(known) = core.ns.lost_found()? {
                return Ok((known, None));
            }
            let Core { ns, placer, .. } = core;
            let mut env = MdtEnv { mdt: self, placer, now: self.rt.now(), wait: false, client: None };
            let Done { transno, invalidations, .. } = ns.make_lost_found(new, &mut env)?;
            Ok((new, Some((transno, self.lasting_change(None, &invalidations)))))
        };
        let (dir, made) = self.when_settled(&BTreeSet::from([ROOT]), make).await?;
        if let Some((transno, change)) = made {
            change.revoke().await;
            self.commits.reach(Goal::Transno(transno)).await?;
        }
        Ok(LostFound { dir, sequence })
    }

    /// Runs `work` with the core lock held, when no request is changing any of these inodes.
    async fn when_settled<T>(&self, files: &BTreeSet<Fid>, mut work: impl FnMut(&mut Core) -> Result<T>) -> Result<T> {
        loop {
            self.commits.admit().await?;
            self.check_space()?;
            let changing = {
                let mut core = self.core.lock();
                if self.stopped.load(Relaxed) {
                    return Err(Errno::ESHUTDOWN);
                }
                if self.lfsck.stop.load(Relaxed) {
                    return Err(Errno::ECANCELED);
                }
                let Some(changing) = files.iter().copied().find(|fid| self.locks.is_changing(*fid)) else {
                    let done = work(&mut core);
                    if let Some(fault) = core.ns.take_fault() {
                        self.store_failed("lfsck", &fault);
                    }
                    self.wake_committer(&core);
                    return done;
                };
                changing
            };
            self.locks.settled(changing).await;
        }
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
