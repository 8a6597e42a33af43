//! Repair of orphan objects on a running MDT: those with data become files in `/lost+found`, empty
//! ones are destroyed.
//!
//! Invariants:
//! * No client sees a file made of an object before the file is durable. Otherwise the client could
//!   name it in a change, and replay that to an MDT that does not have the file.
//! * All repairs are durable when they have ended. The next check reads a snapshot of the last
//!   commit, and would find the same orphans again.
//! * While the store fails, only `/lost+found` cannot be used. So that directory is made by itself.

use std::future::ready;
use std::sync::atomic::Ordering::Relaxed;

use sheen_namespace::{Done, Env, OpError};
use sheen_wire::{Errno, Fid, Result, fid::ROOT};

use crate::env::MdtEnv;
use crate::locks::LockedChange;
use crate::mdt::Mdt;
use crate::state::commits::Goal;
use crate::state::core::Core;

/// Objects repaired in one step: with the core lock held, and in one commit.
const AT_ONCE: usize = 64;

/// An object that belongs to no file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orphan {
    pub ost: u32,
    pub object: Fid,
    pub bytes: u64,
}

/// The repairs of one step.
struct Step {
    outcomes: Vec<Result<()>>,
    transno: u64,
    change: LockedChange,
}

impl Mdt {
    /// Repairs orphan objects. Returns the outcome of each. ENOSPC: the MDT is full, or has no FIDs
    /// left. EROFS, EIO: the store cannot be written. ECANCELED: the check is to end. ESHUTDOWN:
    /// the MDT stops.
    pub(crate) async fn adopt(&self, orphans: &[Orphan]) -> Vec<Result<()>> {
        let mut outcomes = Vec::with_capacity(orphans.len());
        for some in orphans.chunks(AT_ONCE) {
            match self.adopt_some(some).await {
                Ok(these) => outcomes.extend(these),
                Err(errno) => {
                    outcomes.resize(orphans.len(), Err(errno));
                    break;
                }
            }
        }
        outcomes
    }

    async fn adopt_some(&self, orphans: &[Orphan]) -> Result<Vec<Result<()>>> {
        let sequence = self.own_sequence().await?;
        let mut fids = (1..).map(|oid| Fid::new(sequence, oid));
        let mut next = || fids.next().unwrap_or(Fid::ZERO);
        let dir = self.lost_found(next()).await?;
        let fids: Vec<Fid> = orphans.iter().map(|_| next()).collect();
        let adopt = |core: &mut Core| Ok(self.adopt_now(core, orphans, dir, &fids));
        let Step { outcomes, transno, change } = self.when_settled(dir, adopt).await?;
        change.revoke_when(self.durable(transno), ready(())).await?;
        Ok(outcomes)
    }

    fn adopt_now(&self, core: &mut Core, orphans: &[Orphan], dir: Fid, fids: &[Fid]) -> Step {
        let Core { ns, placer, .. } = core;
        let mut env = MdtEnv { mdt: self, placer, now: self.rt.now(), client: None, wait: false };
        let (mut outcomes, mut transno, mut invalidations) = (Vec::new(), 0, Vec::new());
        for (&Orphan { ost, object, bytes }, fid) in orphans.iter().zip(fids) {
            let done = match bytes {
                0 => ns.discard(ost, object, env.now()),
                _ => ns.adopt(ost, object, dir, *fid, &mut env),
            };
            outcomes.push(done.map(|done| {
                transno = transno.max(done.transno);
                invalidations.extend(done.invalidations);
            }));
        }
        Step { outcomes, transno, change: self.lasting_change(None, &invalidations) }
    }

    /// Returns the directory `/lost+found`, which exists and is durable.
    async fn lost_found(&self, new: Fid) -> Result<Fid> {
        let make = |core: &mut Core| {
            if let Some(known) = core.ns.lost_found()? {
                return Ok((known, None));
            }
            let Core { ns, placer, .. } = core;
            let mut env = MdtEnv { mdt: self, placer, now: self.rt.now(), wait: false, client: None };
            let Done { transno, invalidations, .. } = ns.make_lost_found(new, &mut env)?;
            Ok((new, Some((transno, self.lasting_change(None, &invalidations)))))
        };
        let (dir, made) = self.when_settled(ROOT, make).await?;
        if let Some((transno, change)) = made {
            change.revoke().await;
            self.commits.reach(Goal::Transno(transno)).await?;
        }
        Ok(dir)
    }

    /// Runs `work` with the core lock held, when no request is changing the inode.
    async fn when_settled<T>(&self, fid: Fid, mut work: impl FnMut(&mut Core) -> Result<T>) -> Result<T> {
        loop {
            self.commits.admit().await?;
            self.check_space()?;
            {
                let mut core = self.core.lock();
                if self.stopped.load(Relaxed) {
                    return Err(Errno::ESHUTDOWN);
                }
                if self.lfsck.stop.load(Relaxed) {
                    return Err(Errno::ECANCELED);
                }
                if !self.locks.is_changing(fid) {
                    let done = work(&mut core);
                    if let Some(fault) = core.ns.take_fault() {
                        self.store_failed("lfsck", &fault);
                    }
                    self.wake_committer(&core);
                    return done;
                }
            }
            self.locks.settled(fid).await;
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
