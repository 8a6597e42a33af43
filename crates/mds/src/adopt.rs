//! Repair of orphan objects on a running MDT: those with data become files in `/lost+found`, empty
//! ones are destroyed.
//!
//! Invariants:
//! * No client sees a file made of an object before the file is durable. Otherwise the client could
//!   name it in a change, and replay that to an MDT that does not have the file.
//! * All repairs are durable when they have ended. The next check reads a snapshot of the last
//!   commit, and would find the same orphans again.

use std::future::ready;
use std::sync::atomic::Ordering::Relaxed;

use sheen_namespace::{Env, OpError};
use sheen_wire::{Errno, Fid, Result};

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
    /// Repairs orphan objects. Returns the outcome of each.
    ///
    /// # Errors
    /// ENOSPC: the MDT is full, or has no FIDs left. EROFS: the store cannot be written. ESHUTDOWN:
    /// the MDT stops.
    pub(crate) async fn adopt(&self, orphans: &[Orphan]) -> Result<Vec<Result<()>>> {
        let mut outcomes = Vec::with_capacity(orphans.len());
        for some in orphans.chunks(AT_ONCE) {
            let Step { outcomes: these, transno, change } = self.adopt_some(some).await?;
            change.revoke_when(self.durable(transno), ready(())).await?;
            outcomes.extend(these);
        }
        Ok(outcomes)
    }

    async fn adopt_some(&self, orphans: &[Orphan]) -> Result<Step> {
        let sequence = self.own_sequence().await?;
        loop {
            self.commits.admit().await?;
            self.check_space()?;
            let busy = {
                let mut core = self.core.lock();
                if self.stopped.load(Relaxed) {
                    return Err(Errno::ESHUTDOWN);
                }
                let involved = core.ns.adopters()?;
                match involved.into_iter().find(|fid| self.locks.is_changing(*fid)) {
                    Some(fid) => fid,
                    None => return Ok(self.adopt_now(&mut core, orphans, sequence)),
                }
            };
            self.locks.settled(busy).await;
        }
    }

    fn adopt_now(&self, core: &mut Core, orphans: &[Orphan], sequence: u64) -> Step {
        let Core { ns, placer, .. } = core;
        let mut env = MdtEnv { mdt: self, placer, now: self.rt.now(), wait: false };
        let (mut outcomes, mut transno, mut invalidations) = (Vec::new(), 0, Vec::new());
        let mut fids = (1..).map(|oid| Fid::new(sequence, oid));
        for &Orphan { ost, object, bytes } in orphans {
            let fids = [(); 2].map(|()| fids.next().unwrap_or(Fid::ZERO));
            let done = match bytes {
                0 => ns.discard(ost, object, env.now()),
                _ => ns.adopt(ost, object, fids, &mut env),
            };
            outcomes.push(done.map(|done| {
                transno = transno.max(done.transno);
                invalidations.extend(done.invalidations);
            }));
        }
        if let Some(fault) = if outcomes.contains(&Err(Errno::EIO)) { ns.take_fault() } else { None } {
            self.store_failed("lfsck", &fault);
        }
        let change = self.lasting_change(None, &invalidations);
        self.wake_committer(core);
        Step { outcomes, transno, change }
    }

    /// Takes a sequence of FIDs for files that the MDT itself makes.
    async fn own_sequence(&self) -> Result<u64> {
        loop {
            let round = {
                let mut core = self.core.lock();
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
