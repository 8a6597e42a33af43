//! Finding the end of a file, so that it stays where it is until the caller has written there.
//!
//! The end is known while PW is held on all objects, so that no other client writes, cuts or
//! appends. Locks are taken from one OST after the other by index, all of an OST in one request,
//! which the OST enqueues in one step; so no two clients wait for each other in a circle. They stay
//! afterwards until somebody wants them: who appends alone asks once.
//!
//! Invariants:
//! * while locks of an OST are waited for, only locks of OSTs before it are in use: of those of the
//!   OST itself none, for another one may have been enqueued between;
//! * locks are not kept in use for long while others are waited for ([`PATIENCE`]): a client that
//!   is slow to give back what another one waits for is given up, and so would be one that waits
//!   for a client that has died.
//!
//! What goes on at the OST under these locks does not wait: its own locks spare those of the client
//! that asks, and pass those that wait for them. An OST that is restarted while the write is on its
//! way has forgotten the locks; that append may meet another one.

use std::{pin::pin, time::Duration};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Result,
    ldlm::{Flags, Mode, Resource},
};

use super::{Lov, enqueue::WHOLE, split::by_ost, stripe};
use crate::locks::LockRef;

/// Longest that locks of one OST are in use while another one is waited for. A quarter of the time
/// after which a server gives up a client that keeps a lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Times that the locks are asked for, where they are lost or take long.
const ROUNDS_MAX: usize = 16;

impl Lov {
    /// The file's size in bytes, and the locks (PW on each object, by stripe) under which it stays
    /// that as long as they are in use.
    ///
    /// # Errors
    /// ENOLCK: the locks could not be had, or were lost again and again. What else the OSTs answer.
    pub async fn lock_end(&self, layout: &Layout) -> Result<(u64, Vec<LockRef>)> {
        // While the locks are waited for, who reads must not have to wait for what is kept under
        // those that are there.
        self.settle_file(layout).await;
        for _ in 0..ROUNDS_MAX {
            let Some(locks) = self.lock_for_writing(layout).await? else { continue };
            let mut size = pin!(self.size(layout));
            let Ok(end) = self.rt.timeout(PATIENCE, size.as_mut()).await else {
                drop(locks);
                // For the next round, when all can be reached again.
                size.await?;
                continue;
            };
            let end = end?;
            if self.are_held(layout, &locks) {
                return Ok((end, locks));
            }
        }
        tracing::warn!("{}: no locks for appending", layout.fid());
        Err(Errno::ENOLCK)
    }

    /// PW on each object, by stripe. `None`: some could not be had, or took long.
    async fn lock_for_writing(&self, layout: &Layout) -> Result<Option<Vec<LockRef>>> {
        let mut locks: Vec<Option<LockRef>> = (0..layout.stripe_count()).map(|_| None).collect();
        for (ost, stripes) in by_ost(layout, 0..layout.stripe_count())? {
            let there = stripes.iter().map(|s| self.writable(layout, *s)).collect::<Option<Vec<_>>>();
            let got = match there {
                Some(got) => got,
                None => {
                    let mut asking = pin!(self.lock_together(layout, ost, &stripes));
                    match self.rt.timeout(PATIENCE, asking.as_mut()).await {
                        Ok(Ok(Some(got))) => got,
                        Ok(other) => return other,
                        Err(_) => {
                            locks.clear();
                            // They are there for the next round, if nobody else wants them.
                            return asking.await.map(|_| None);
                        }
                    }
                }
            };
            stripes.iter().zip(got).for_each(|(s, lock)| locks[*s] = Some(lock));
        }
        Ok(locks.into_iter().collect())
    }

    /// PW on a stripe's object, if it is there.
    fn writable(&self, layout: &Layout, index: usize) -> Option<LockRef> {
        let stripe = layout.stripes().get(index)?;
        self.get(stripe.ost)?.locks().matching_in(Resource::extent(stripe.object), Mode::Pw, &WHOLE)
    }

    /// PW on the objects of these stripes, all on one OST; waits for them.
    async fn lock_together(&self, layout: &Layout, ost: u32, stripes: &[usize]) -> Result<Option<Vec<LockRef>>> {
        let object = |s: &usize| Ok((layout.fid(), stripe(layout, *s)?.object));
        let objects = stripes.iter().map(object).collect::<Result<Vec<_>>>()?;
        let answers = self.enqueue(ost, &objects, Mode::Pw, WHOLE, Flags::default()).await?;
        Ok(answers.into_iter().map(|(lock, ..)| lock).collect())
    }
}
