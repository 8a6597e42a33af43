//! Locks on objects.
//!
//! Who keeps the size of a file, or its data, holds PR on the whole of each object that matters; who appends, PW (`append`). A request for
//! several PR locks never waits for others ([`Lov::try_lock`]): what it had got already would be in somebody's way meanwhile, who might hold
//! what it waits for. One lock by itself may be waited for ([`Lov::lock`]).

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource},
    ost::{ObjectAttr, Reply, Request},
};

use super::{Lov, stripe};
use crate::locks::LockRef;

/// A lock that is wanted: file, object, part of it, how.
pub type Want = (Fid, Fid, Policy, Flags);

/// All of an object.
pub const WHOLE: Policy = Policy::extent(0, u64::MAX);

impl Lov {
    /// The lock on a stripe's object, if it is there.
    pub fn matching(&self, layout: &Layout, index: usize) -> Option<LockRef> {
        let stripe = layout.stripes().get(index)?;
        self.get(stripe.ost)?.locks().matching(Resource::extent(stripe.object), &WHOLE)
    }

    /// The handles of the locks on all objects, if they are all there.
    pub fn all_locked(&self, layout: &Layout) -> Option<Vec<Cookie>> {
        (0..layout.stripe_count()).map(|i| self.matching(layout, i).map(|lock| lock.cookie())).collect()
    }

    /// The locks on all objects, if they are still those of these handles.
    pub fn lock_again(&self, layout: &Layout, cookies: &[Cookie]) -> Option<Vec<LockRef>> {
        let again = |(i, cookie): (usize, &Cookie)| self.matching(layout, i).filter(|lock| lock.cookie() == *cookie);
        cookies.iter().enumerate().map(again).collect()
    }

    /// Whether all these locks are held still. Public knowledge is dropped after the locks, so it is to be asked where it is put in.
    pub fn are_held(&self, layout: &Layout, locks: &[LockRef]) -> bool {
        let held = |(stripe, lock): (&sheen_layout::Stripe, &LockRef)| {
            self.get(stripe.ost).is_some_and(|osc| osc.locks().is_held(lock.cookie(), &WHOLE))
        };
        layout.stripes().iter().zip(locks).all(held)
    }

    /// Asks for locks on objects of one OST, each given with its file, without waiting for others. Those that were had, and what the
    /// objects are.
    pub async fn try_lock(&self, ost: u32, objects: &[(Fid, Fid)]) -> Result<Vec<(Option<LockRef>, ObjectAttr)>> {
        // Somebody who appends keeps its lock until it is asked for it.
        let flags = Flags { nowait: true, ask: true, ..Flags::default() };
        let answers = self.enqueue(ost, objects, Mode::Pr, WHOLE, flags).await?;
        Ok(answers.into_iter().map(|(lock, _, attr)| (lock, attr)).collect())
    }

    /// The lock on a stripe's object; waits for it.
    pub async fn lock(&self, layout: &Layout, index: usize) -> Result<Option<LockRef>> {
        let stripe = stripe(layout, index)?;
        let objects = [(layout.fid(), stripe.object)];
        let answer = self.enqueue(stripe.ost, &objects, Mode::Pr, WHOLE, Flags::default()).await?;
        Ok(answer.into_iter().next().and_then(|(lock, ..)| lock))
    }

    /// Asks for locks on objects of one OST, each given with its file. Those that were had, what was answered, and what the objects are.
    pub(super) async fn enqueue(
        &self,
        ost: u32,
        objects: &[(Fid, Fid)],
        mode: Mode,
        policy: Policy,
        flags: Flags,
    ) -> Result<Vec<(Option<LockRef>, Enqueued, ObjectAttr)>> {
        let wants: Vec<Want> = objects.iter().map(|(file, object)| (*file, *object, policy, flags)).collect();
        self.enqueue_each(ost, &wants, mode).await
    }

    /// As [`Lov::enqueue`], each on a part of its own.
    pub(super) async fn enqueue_each(
        &self,
        ost: u32,
        wants: &[Want],
        mode: Mode,
    ) -> Result<Vec<(Option<LockRef>, Enqueued, ObjectAttr)>> {
        let osc = self.osc(ost).await?;
        let begin = |(_, object, policy, _): &Want| osc.locks().begin(Resource::extent(*object), mode, *policy);
        let asking: Vec<_> = wants.iter().map(begin).collect();
        let lock = |((_, object, policy, flags), asking): (&Want, &crate::locks::Asking)| Enqueue {
            flags: *flags,
            ..Enqueue::new(Resource::extent(*object), mode, *policy, asking.cookie())
        };
        let locks = wants.iter().zip(&asking).map(lock).collect();
        // Who locks all of an object to write appends, and nothing of that is kept: space is not to be promised in vain.
        let keeps = mode.writes() && wants.iter().any(|(_, _, policy, _)| *policy != WHOLE);
        let want = if keeps { osc.writeback().want() } else { 0 };
        let request = Request::Enqueue { locks, want };
        let Reply::Enqueued { locks: answers, granted } = osc.call(request, Bulk::new()).await?.0 else {
            return Err(Errno::EPROTO);
        };
        osc.writeback().granted(granted);
        if answers.len() != wants.len() {
            return Err(Errno::EPROTO);
        }
        let mut got = Vec::with_capacity(answers.len());
        for ((asking, (file, object, ..)), (answer, attr)) in asking.into_iter().zip(wants).zip(answers) {
            let lock = asking.answered(&answer);
            if lock.is_some() {
                self.cache.data.own(*object, *file);
                self.cache.locked(*file);
            }
            got.push((lock, answer, attr));
        }
        Ok(got)
    }
}
