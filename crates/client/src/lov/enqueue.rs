//! Locks on objects.
//!
//! Who keeps the size of a file, or its data, holds PR on the whole of each object that matters;
//! who appends, PW (`append`). A request for several PR locks never waits for others
//! ([`Lov::try_lock`]): what it had got already would be in somebody's way meanwhile, who might
//! hold what it waits for. One lock by itself may be waited for ([`Lov::lock`]).
//!
//! **Who waits while this client joins a group** on the object gets no lock, and needs none any
//! more: the OST would grant it when the group is left. The program that is to leave it may well
//! wait for who waits here (the kernel has the pages of a read, and the file of a write, locked).

use std::sync::Arc;

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource},
    ost::{ObjectAttr, Reply, Request},
};

use super::{Lov, stripe};
use crate::{
    cache::Cache,
    locks::{Asking, LockRef},
    osc::Osc,
};

/// A lock that is wanted: file, object, part of it, how.
pub type Want = (Fid, Fid, Policy, Flags);

/// What an answer is where this client has joined a group on the object instead.
const IN_GROUP: Enqueued = Enqueued::Refused(Errno::EAGAIN);

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

    /// Whether all these locks are held still. Public knowledge is dropped after the locks, so it
    /// is to be asked where it is put in.
    pub fn are_held(&self, layout: &Layout, locks: &[LockRef]) -> bool {
        let held = |(stripe, lock): (&sheen_layout::Stripe, &LockRef)| {
            self.get(stripe.ost).is_some_and(|osc| osc.locks().is_held(lock.cookie(), &WHOLE))
        };
        layout.stripes().iter().zip(locks).all(held)
    }

    /// Asks for locks on objects of one OST, each given with its file, without waiting for others.
    /// Those that were had, and what the objects are.
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

    /// Asks for locks on objects of one OST, each given with its file. Those that were had, what
    /// was answered, and what the objects are.
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
        let lock = |((_, object, policy, flags), asking): (&Want, &Asking)| Enqueue {
            flags: *flags,
            ..Enqueue::new(Resource::extent(*object), mode, *policy, asking.cookie())
        };
        let locks = wants.iter().zip(&asking).map(lock).collect();
        // Who locks all of an object to write appends, and nothing of that is kept: space is not to
        // be promised in vain.
        let keeps = mode.writes() && wants.iter().any(|(_, _, policy, _)| *policy != WHOLE);
        let want = if keeps { osc.writeback().want() } else { 0 };
        let request = Request::Enqueue { locks, want };
        let may_wait = mode != Mode::Group && wants.iter().any(|(.., flags)| !flags.nowait);
        let answered = match may_wait {
            true => self.ask_unless_joining(&osc, request, asking, wants).await?,
            false => Some((osc.call(request, Bulk::new()).await?.0, asking)),
        };
        let Some((reply, asking)) = answered else {
            return Ok(wants.iter().map(|_| (None, IN_GROUP, ObjectAttr::default())).collect());
        };
        let Reply::Enqueued { locks: answers, granted } = reply else { return Err(Errno::EPROTO) };
        osc.writeback().granted(granted);
        if answers.len() != wants.len() {
            return Err(Errno::EPROTO);
        }
        let mut got = Vec::with_capacity(answers.len());
        for ((asking, want), (answer, attr)) in asking.into_iter().zip(wants).zip(answers) {
            got.push((take(&self.cache, asking, want, &answer), answer, attr));
        }
        Ok(got)
    }

    /// Asks for locks, and waits for them until this client is in a group on one of the objects:
    /// then `None`. What comes all the same, when the group is left, is taken: locks as if they had
    /// been used, and promises of space.
    async fn ask_unless_joining(
        &self,
        osc: &Arc<Osc>,
        request: Request,
        asking: Vec<Asking>,
        wants: &[Want],
    ) -> Result<Option<(Reply, Vec<Asking>)>> {
        let caller = osc.clone();
        let mut call = Box::pin(async move { Ok::<_, Errno>(caller.call(request, Bulk::new()).await?.0) });
        let joins = async {
            let objects: Vec<_> = wants.iter().map(|(_, object, ..)| Resource::extent(*object)).collect();
            osc.locks().joins_group(&objects).await;
        };
        tokio::select! {
            biased;
            reply = &mut call => return Ok(Some((reply?, asking))),
            () = joins => {}
        }
        let (osc, cache, wants) = (osc.clone(), self.cache.clone(), wants.to_vec());
        let late = async move {
            let Ok(Reply::Enqueued { locks, granted }) = call.await else { return };
            osc.writeback().granted(granted);
            for ((asking, want), (answer, _)) in asking.into_iter().zip(&wants).zip(locks) {
                drop(take(&cache, asking, want, &answer));
            }
        };
        drop(self.rt.spawn("ldlm_late", late));
        Ok(None)
    }
}

/// Takes the answer to what was asked for, and the lock if there is one.
fn take(cache: &Cache, asking: Asking, (file, object, ..): &Want, answer: &Enqueued) -> Option<LockRef> {
    let lock = asking.answered(answer)?;
    cache.data.own(*object, *file);
    cache.locked(*file);
    Some(lock)
}
