//! Extent locks on objects.
//!
//! To cache a file's size or data, the client holds PR on the whole of each object that matters. To
//! append, it holds PW (`append`). A request for several PR locks never waits for conflicting locks
//! ([`Lov::try_lock`]). Otherwise the locks that it has already got would block another client,
//! which may hold the lock that the request waits for. A request for a single lock may wait
//! ([`Lov::lock`]).
//!
//! **Joining a group**: if this client joins a group on the object while a lock request waits, the
//! request gets no lock and needs none any more. The OST would grant it only after the client has
//! left the group. The program that has to leave the group may itself wait for the blocked
//! operation: the kernel has locked the pages of a read, and the file of a write.
//!
//! **Several PW locks**: while a request waits for one of its locks, other clients may need another
//! one that the OST has granted already. A member of a group, for example, joins the group on the
//! objects where it exists, ahead of waiting requests. Both would wait for each other. So after
//! some time the client cancels those of the locks that are wanted, and the caller asks again.

use std::{sync::Arc, time::Duration};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource},
    ost::{ObjectAttr, Reply, Request},
};

use super::{LockedObjects, Lov, Ost, stripe};
use crate::{
    failure::{Failure, Result},
    locks::{LockRef, PendingEnqueue},
    writeback::TightFiles,
};

/// A requested lock: file, object, range and flags.
pub type Want = (Fid, Fid, Policy, Flags);

/// Result of a lock request during which this client joined a group on the object.
const IN_GROUP: Enqueued = Enqueued::Refused(Errno::EAGAIN);

/// How long locks of one OST are in use while another OST is waited for. A quarter of the time
/// after which a server evicts a client that does not cancel a revoked lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The range of a whole object.
pub const WHOLE: Policy = Policy::extent(0, u64::MAX);

impl Lov {
    /// Returns the PR lock on a stripe's whole object, if it is held.
    pub fn matching(&self, layout: &Layout, index: usize) -> Option<LockRef> {
        let stripe = layout.stripes().get(index)?;
        self.get(stripe.ost)?.osc.locks().matching(Resource::extent(stripe.object), &WHOLE)
    }

    /// Returns the handles of the locks on all objects, if all are held.
    pub fn all_locked(&self, layout: &Layout) -> Option<Vec<Cookie>> {
        (0..layout.stripe_count()).map(|i| self.matching(layout, i).map(|lock| lock.cookie())).collect()
    }

    /// Returns the locks on all objects, if they still have these handles.
    pub fn lock_again(&self, layout: &Layout, cookies: &[Cookie]) -> Option<Vec<LockRef>> {
        let again = |(i, cookie): (usize, &Cookie)| self.matching(layout, i).filter(|lock| lock.cookie() == *cookie);
        cookies.iter().enumerate().map(again).collect()
    }

    /// Whether all these locks are still held. Call it while data is put into a
    /// cache. When locks are lost, first the locks and then the cached data are dropped, so data
    /// stored under lost locks would stay.
    pub fn are_held(&self, layout: &Layout, locks: &[LockRef]) -> bool {
        let held = |(stripe, lock): (&sheen_layout::Stripe, &LockRef)| {
            self.get(stripe.ost).is_some_and(|ost| ost.osc.locks().is_held(lock.cookie(), &WHOLE))
        };
        layout.stripes().iter().zip(locks).all(held)
    }

    /// Requests PR locks on objects of one OST, each given with its file, without waiting for
    /// conflicting locks. Returns the granted locks, and the attributes of the objects.
    pub async fn try_lock(&self, ost: u32, objects: &[(Fid, Fid)]) -> Result<Vec<(Option<LockRef>, ObjectAttr)>> {
        // `ask`: another client that has appended holds its lock until it is revoked.
        let flags = Flags { nowait: true, ask: true, ..Flags::default() };
        let answers = self.enqueue(ost, objects, Mode::Pr, WHOLE, flags).await?;
        Ok(answers.into_iter().map(|(lock, _, attr)| (lock, attr)).collect())
    }

    /// Requests the PR lock on a stripe's object, and waits for it.
    pub async fn lock(&self, layout: &Layout, index: usize) -> Result<Option<LockRef>> {
        let stripe = stripe(layout, index)?;
        let objects = [(layout.fid(), stripe.object)];
        let answer = self.enqueue(stripe.ost, &objects, Mode::Pr, WHOLE, Flags::default()).await?;
        Ok(answer.into_iter().next().and_then(|(lock, ..)| lock))
    }

    /// Requests locks on objects of one OST, each given with its file. Returns the granted locks,
    /// the OST's replies, and the attributes of the objects.
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

    /// Requests locks like [`Lov::enqueue`], each with its own range and flags.
    pub(super) async fn enqueue_each(
        &self,
        ost: u32,
        wants: &[Want],
        mode: Mode,
    ) -> Result<Vec<(Option<LockRef>, Enqueued, ObjectAttr)>> {
        let ost = self.ost(ost).await?;
        let begin = |(_, object, policy, _): &Want| ost.osc.locks().begin(Resource::extent(*object), mode, *policy);
        let asking: Vec<_> = wants.iter().map(begin).collect();
        let lock = |((_, object, policy, flags), asking): (&Want, &PendingEnqueue)| Enqueue {
            flags: *flags,
            ..Enqueue::new(Resource::extent(*object), mode, *policy, asking.cookie())
        };
        let locks = wants.iter().zip(&asking).map(lock).collect();
        // A PW lock on a whole object is for an append, which is not cached. So it needs no grant.
        let keeps = mode.writes() && wants.iter().any(|(_, _, policy, _)| *policy != WHOLE);
        let want = if keeps { ost.writeback.want() } else { 0 };
        let request = Request::Enqueue { locks, want };
        let may_wait = mode != Mode::Group && wants.iter().any(|(.., flags)| !flags.nowait);
        let answered = match may_wait {
            true => self.ask_unless_joining(&ost, request, asking, wants, mode).await?,
            false => Some((ost.osc.request(request).send().await?.body, asking)),
        };
        let Some((reply, asking)) = answered else {
            return Ok(wants.iter().map(|_| (None, IN_GROUP, ObjectAttr::default())).collect());
        };
        let Reply::Enqueued { locks: answers, granted, tight } = reply else { return Err(Errno::EPROTO.into()) };
        ost.writeback.granted(granted);
        note_tight(&self.tight, mode, wants, tight);
        if answers.len() != wants.len() {
            return Err(Errno::EPROTO.into());
        }
        let mut got = Vec::with_capacity(answers.len());
        for ((asking, want), (answer, attr)) in asking.into_iter().zip(wants).zip(answers) {
            got.push((take(&self.objects, asking, want, &answer), answer, attr));
        }
        Ok(got)
    }

    /// Requests locks and waits for them. Returns `None` if this client joins a group on one of the
    /// objects meanwhile. A late reply, after the group was left, is still processed: its locks
    /// become unused locks, its grant is added, and its file may become tight.
    async fn ask_unless_joining(
        &self,
        ost: &Arc<Ost>,
        request: Request,
        asking: Vec<PendingEnqueue>,
        wants: &[Want],
        mode: Mode,
    ) -> Result<Option<(Reply, Vec<PendingEnqueue>)>> {
        let caller = ost.osc.clone();
        let mut call = Box::pin(async move { Ok::<_, Failure>(caller.request(request).send().await?.body) });
        let joins = async {
            let objects: Vec<_> = wants.iter().map(|(_, object, ..)| Resource::extent(*object)).collect();
            ost.osc.locks().joins_group(&objects).await;
        };
        let cancel_wanted = async {
            while asking.len() > 1 && mode.writes() {
                self.rt.sleep(PATIENCE).await;
                asking.iter().for_each(PendingEnqueue::cancel_if_wanted);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            reply = &mut call => return Ok(Some((reply?, asking))),
            () = joins => {}
            () = cancel_wanted => {}
        }
        let (ost, held, tight_files, wants) = (ost.clone(), self.objects.clone(), self.tight.clone(), wants.to_vec());
        let late = async move {
            let Ok(Reply::Enqueued { locks, granted, tight }) = call.await else { return };
            ost.writeback.granted(granted);
            note_tight(&tight_files, mode, &wants, tight);
            for ((asking, want), (answer, _)) in asking.into_iter().zip(&wants).zip(locks) {
                drop(take(&held, asking, want, &answer));
            }
        };
        drop(self.rt.spawn("ldlm_late", late));
        Ok(None)
    }
}

/// Records what a reply to a lock request says about the quotas of the file's owners.
fn note_tight(files: &TightFiles, mode: Mode, wants: &[Want], tight: bool) {
    // Locks for writing are all on one file. Those for reading may be on many, which are mostly
    // never written.
    if mode.writes()
        && let Some((file, ..)) = wants.first()
    {
        files.note(*file, tight);
    }
}

/// Processes the reply to a lock request. Returns the lock if it was granted.
fn take(held: &LockedObjects, asking: PendingEnqueue, (file, object, ..): &Want, answer: &Enqueued) -> Option<LockRef> {
    let lock = asking.answered(answer)?;
    held.granted(*object, *file);
    Some(lock)
}
