//! Locks on objects.
//!
//! Who keeps the size of a file, or its data, holds PR on the whole of each object that matters; who appends, PW (`append`). A request for
//! several PR locks never waits for others ([`Lov::try_lock`]): what it had got already would be in somebody's way meanwhile, who might hold
//! what it waits for. One lock by itself may be waited for ([`Lov::lock`]).

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Cookie, Enqueue, Flags, Mode, Policy, Resource},
    ost::{ObjectAttr, Reply, Request},
};

use super::{Lov, stripe};
use crate::locks::LockRef;

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
        self.enqueue(ost, objects, Mode::Pr, flags).await
    }

    /// The lock on a stripe's object; waits for it.
    pub async fn lock(&self, layout: &Layout, index: usize) -> Result<Option<LockRef>> {
        let stripe = stripe(layout, index)?;
        let objects = [(layout.fid(), stripe.object)];
        let answer = self.enqueue(stripe.ost, &objects, Mode::Pr, Flags::default()).await?;
        Ok(answer.into_iter().next().and_then(|(lock, _)| lock))
    }

    /// Asks for locks on the whole of objects of one OST, each given with its file. Those that were had, and what the objects are.
    pub(super) async fn enqueue(
        &self,
        ost: u32,
        objects: &[(Fid, Fid)],
        mode: Mode,
        flags: Flags,
    ) -> Result<Vec<(Option<LockRef>, ObjectAttr)>> {
        let osc = self.osc(ost).await?;
        let asking: Vec<_> =
            objects.iter().map(|(_, object)| osc.locks().begin(Resource::extent(*object), mode, WHOLE)).collect();
        let lock = |((_, object), asking): (&(Fid, Fid), &crate::locks::Asking)| Enqueue {
            flags,
            ..Enqueue::new(Resource::extent(*object), mode, WHOLE, asking.cookie())
        };
        let locks = objects.iter().zip(&asking).map(lock).collect();
        let request = Request::Enqueue { locks, want: 0 };
        let Reply::Enqueued { locks: answers, .. } = osc.call(request, Bulk::new()).await?.0 else {
            return Err(Errno::EPROTO);
        };
        if answers.len() != objects.len() {
            return Err(Errno::EPROTO);
        }
        let mut got = Vec::with_capacity(answers.len());
        for ((asking, (file, object)), (answer, attr)) in asking.into_iter().zip(objects).zip(answers) {
            let lock = asking.answered(&answer);
            if lock.is_some() {
                self.cache.data.own(*object, *file);
                self.cache.locked(*file);
            }
            got.push((lock, attr));
        }
        Ok(got)
    }
}
