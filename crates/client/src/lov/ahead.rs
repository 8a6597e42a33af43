//! Lustre's lockahead: locks on exactly the ranges that a program names, before it uses them.
//! Programs that know in advance which of them writes where get disjoint locks, and never revoke
//! each other's.

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Errno,
    ldlm::{Enqueued, Flags, Mode, Policy, Resource},
};

use super::{Lov, stripe};
use crate::{
    LockedAhead,
    failure::{Failure, Result},
};

impl Lov {
    /// Requests `mode` locks on the parts of the bytes `start..=last` in each object. `wait`: wait
    /// for the locks. Otherwise conflicting locks are not revoked.
    ///
    /// # Errors
    /// ENOLCK: too many locks. Otherwise the error of an OST.
    pub async fn lock_ahead(
        &self,
        layout: &Layout,
        (start, last): (u64, u64),
        mode: Mode,
        wait: bool,
    ) -> Result<LockedAhead> {
        let end = if last < layout.max_file_size() { Some(last + 1) } else { None };
        let ranges = (0..layout.stripe_count()).filter_map(|s| {
            let first = layout.object_offset(start.min(layout.max_file_size()), s);
            let past = layout.object_offset(end.unwrap_or(u64::MAX), s);
            (first < past).then(|| (s, Policy::extent(first, if end.is_some() { past - 1 } else { u64::MAX })))
        });
        let mut found = LockedAhead::Same;
        let mut wanted = Vec::new();
        for (s, policy) in ranges {
            let stripe = stripe(layout, s)?;
            let ost = self.ost(stripe.ost).await?;
            match ost.osc.locks().matching_in(Resource::extent(stripe.object), mode, &policy) {
                Some(lock) if lock.range() == policy.range() => {}
                Some(_) => found = found.max(LockedAhead::Different),
                None => wanted.push((stripe, policy)),
            }
        }
        if wanted.is_empty() {
            return Ok(found);
        }
        let flags = Flags { no_expand: true, nowait: !wait, ..Flags::default() };
        let asks = wanted.iter().map(|(stripe, policy)| async move {
            let objects = [(layout.fid(), stripe.object)];
            let answers = self.enqueue(stripe.ost, &objects, mode, *policy, flags).await?;
            match answers.first() {
                Some((_, Enqueued::Refused(errno), _)) => Err(Failure::of_reply(*errno)),
                Some(_) => Ok(()),
                None => Err(Errno::EPROTO.into()),
            }
        });
        if wait {
            // One after the other, so that no lock is in use while the next one is waited for.
            for ask in asks {
                ask.await?;
            }
        } else {
            join_all(asks).await.into_iter().collect::<Result<()>>()?;
        }
        Ok(LockedAhead::Sent)
    }
}
