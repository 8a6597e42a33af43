//! Locking the end of a file for an append.
//!
//! The end of the file is stable while the client holds PW on all objects: no other client can
//! write, truncate or append. The client locks one OST after the other, by index. It requests all
//! locks of an OST in one request, which the OST enqueues in one step. So no two clients wait for
//! each other in a cycle. The locks stay cached until another client revokes them, so a client that
//! appends alone requests them once.
//!
//! Invariants:
//! * while the client waits for locks of an OST, it has only locks of OSTs with smaller indices in
//!   use. It has none of the same OST in use, because another request may have been enqueued in
//!   between;
//! * no locks are in use for long while others are waited for ([`PATIENCE`]). A server evicts a
//!   client that cancels a revoked lock too late, even if that client waits for another one that
//!   has died.
//!
//! The OST executes requests of this client without waiting for these locks. Its own locks do not
//! conflict with those of the requesting client, and overtake the requests that wait for them.
//!
//! A restarted OST has no locks. From the last check of the locks until its part is written, the
//! append is registered at the OST ([`crate::writeback::Appending`]). The restarted OST accepts the
//! write before other clients get locks. After an eviction, or if the OST did not wait for this
//! client, the append fails with EIO.
//!
//! An append that met sealed objects, and was done in part, is repeated at the same offset once the
//! MDT has answered. Meanwhile it is not registered, because that answer may depend on the end of a
//! recovery. Before it is repeated, it is registered again ([`Lov::resume_append`]). If a lock was
//! lost in between, another client may have appended, and the append fails with EIO. Group locks
//! outlive a restart.

use std::{collections::BTreeSet, pin::pin};

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Errno,
    ldlm::{Cookie, Flags, Mode, Resource},
};

use super::{
    Lov,
    enqueue::{PATIENCE, WHOLE},
    in_use::InUse,
    known_ends::Stamp,
    split::by_ost,
    stripe,
};
use crate::{failure::Result, locks::LockRef, writeback::Appending};

/// Maximum number of lock attempts, when locks are lost or take long.
const ROUNDS_MAX: usize = 16;
/// The same for [`Lov::lock_objects`].
const OBJECTS_ROUNDS_MAX: usize = 3;

/// The locks under which the end of a file was found, and since when it is stable.
pub struct FoundUnder {
    locks: Vec<Cookie>,
    /// `None` during another change by this client.
    since: Option<Stamp>,
}

impl Lov {
    /// Returns the file's size in bytes, and PW locks on all objects, with the registrations of the
    /// append. The size is stable as long as they are in use. Pass the rest to [`Lov::appended`].
    ///
    /// # Errors
    /// ENOLCK: the locks could not be obtained, or were lost repeatedly. Otherwise the error of an
    /// OST.
    pub async fn lock_end(&self, layout: &Layout) -> Result<(u64, InUse, FoundUnder)> {
        // Flush before the locks are requested. Otherwise a reader would have to wait for the flush
        // of data under the locks already held, while this client waits for the others.
        self.settle_file(layout).await;
        for _ in 0..ROUNDS_MAX {
            let Some(locks) = self.lock_for_writing(layout).await? else { continue };
            let cookies = locks.iter().map(LockRef::cookie).collect();
            let under = FoundUnder { locks: cookies, since: self.ends.stamp(layout) };
            let end = match self.ends.get(layout, &under.locks) {
                Some(end) => end,
                None => {
                    let mut size = pin!(self.size(layout));
                    let Ok(end) = self.rt.timeout(PATIENCE, size.as_mut()).await else {
                        drop(locks);
                        // Wait until all OSTs answer again, for the next round.
                        size.await?;
                        continue;
                    };
                    end?
                }
            };
            // Not earlier: a restarted OST waits for registered appends, and tells the size later.
            let appends = self.begin_appends(layout);
            if self.are_held(layout, &locks) {
                return Ok((end, InUse::of_append(layout, locks, appends), under));
            }
        }
        tracing::warn!("{}: cannot lock the end of the file for an append: returning ENOLCK", layout.fid());
        Err(Errno::ENOLCK.into())
    }

    /// Returns PW locks on all objects of a file, for a change of several objects that is to be
    /// atomic. `None`: other clients revoke them again and again.
    ///
    /// # Errors
    /// The error of an OST.
    pub async fn lock_objects(&self, layout: &Layout) -> Result<Option<InUse>> {
        // As in `lock_end`.
        self.settle_file(layout).await;
        // All OSTs at once. These requests do not wait for other clients, so there is no cycle.
        let groups = by_ost(layout, 0..layout.stripe_count())?;
        let at_once = Flags { nowait: true, ask: true, ..Flags::default() };
        let missing = groups.iter().filter(|(_, stripes)| stripes.iter().any(|s| self.writable(layout, *s).is_none()));
        let asking = missing.map(|(ost, stripes)| self.lock_together(layout, *ost, stripes, at_once));
        join_all(asking).await.into_iter().collect::<Result<Vec<_>>>()?;
        for _ in 0..OBJECTS_ROUNDS_MAX {
            if let Some(locks) = self.lock_for_writing(layout).await? {
                return Ok(Some(InUse::new(layout, locks.into_iter().enumerate())));
            }
        }
        Ok(None)
    }

    /// Registers an append at the OSTs of all objects.
    fn begin_appends(&self, layout: &Layout) -> Vec<(u32, Appending)> {
        let osts: BTreeSet<u32> = layout.stripes().iter().map(|stripe| stripe.ost).collect();
        osts.into_iter().filter_map(|ost| Some((ost, self.get(ost)?.writeback.begin_append()))).collect()
    }

    /// Registers an append again that is going to be repeated at the end that it had found.
    ///
    /// # Errors
    /// EIO: a lock was lost since, so the file may have another end now.
    pub fn resume_append(&self, locks: &InUse) -> Result<()> {
        // The check comes after the registration, as in `lock_end`.
        let register = |ost| Some(self.get(ost)?.writeback.begin_append());
        if locks.resume_append(register) { Ok(()) } else { Err(Errno::EIO.into()) }
    }

    /// Notes the new end of the file after an append.
    pub fn appended(&self, layout: &Layout, under: FoundUnder, end: u64) {
        if let Some(since) = under.since {
            self.ends.learn(layout, since, under.locks, end);
        }
    }

    /// Locks each object in PW, by stripe. `None`: a lock could not be obtained, or took too long.
    async fn lock_for_writing(&self, layout: &Layout) -> Result<Option<Vec<LockRef>>> {
        let mut locks: Vec<Option<LockRef>> = (0..layout.stripe_count()).map(|_| None).collect();
        for (ost, stripes) in by_ost(layout, 0..layout.stripe_count())? {
            let there = stripes.iter().map(|s| self.writable(layout, *s)).collect::<Option<Vec<_>>>();
            let got = match there {
                Some(got) => got,
                None => {
                    let mut asking = pin!(self.lock_together(layout, ost, &stripes, Flags::default()));
                    match self.rt.timeout(PATIENCE, asking.as_mut()).await {
                        Ok(Ok(Some(got))) => got,
                        Ok(other) => return other,
                        Err(_) => {
                            locks.clear();
                            // The locks stay for the next round, unless another client revokes
                            // them.
                            return asking.await.map(|_| None);
                        }
                    }
                }
            };
            stripes.iter().zip(got).for_each(|(s, lock)| locks[*s] = Some(lock));
        }
        Ok(locks.into_iter().collect())
    }

    /// Returns a lock of this client that protects the end of a stripe's object, if there is one.
    /// The group's lock comes before PW, because it outlives a restart of the OST.
    fn writable(&self, layout: &Layout, index: usize) -> Option<LockRef> {
        let stripe = layout.stripes().get(index)?;
        let (ost, object) = (self.get(stripe.ost)?, Resource::extent(stripe.object));
        let locks = ost.osc.locks();
        locks.in_group(object).or_else(|| locks.matching_in(object, Mode::Pw, &WHOLE))
    }

    /// Requests PW locks on the objects of these stripes, all on one OST. `None`: not all were
    /// granted.
    async fn lock_together(
        &self,
        layout: &Layout,
        ost: u32,
        stripes: &[usize],
        flags: Flags,
    ) -> Result<Option<Vec<LockRef>>> {
        let object = |s: &usize| Ok((layout.fid(), stripe(layout, *s)?.object));
        let objects = stripes.iter().map(object).collect::<Result<Vec<_>>>()?;
        let answers = self.enqueue(ost, &objects, Mode::Pw, WHOLE, flags).await?;
        Ok(answers.into_iter().map(|(lock, ..)| lock).collect())
    }
}
