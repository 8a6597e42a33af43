//! Weakening a lock in place: a holder keeps what nobody else wants.
//!
//! Contract: the lock is the new one at once, and whoever waited only for what was given up is
//! granted. If others still wait for what is left, the holder is asked again. What would make the
//! lock stronger or empty is refused and changes nothing: so a conversion that arrives twice, or
//! after a further one, does no harm.

use sheen_rt::Instant;
use sheen_wire::{
    Errno,
    ldlm::{Convert, LockId, Mode, Policy},
};

use super::{Action, ClientId, Namespace};

impl Namespace {
    /// A client weakens a lock that it was granted. ENOENT: it has no such lock; EINVAL: that would
    /// not be weaker.
    pub fn convert(
        &mut self,
        now: Instant,
        client: ClientId,
        id: LockId,
        to: Convert,
        actions: &mut Vec<Action>,
    ) -> Result<(), Errno> {
        let n = self.find(id).filter(|n| self.locks[*n].client == client && !self.locks[*n].waiting);
        let n = n.ok_or(Errno::ENOENT)?;
        let lock = &self.locks[n];
        let (mode, policy) = weaker(lock.mode, lock.policy, to).ok_or(Errno::EINVAL)?;
        if (mode, policy) == (lock.mode, lock.policy) {
            // Nothing is given up, so nothing that was asked for.
            return Ok(());
        }
        let was_asked = lock.asked.is_some();
        if was_asked {
            self.set_asked(n, None);
            self.end_deadline(n);
            if let Some(client) = self.clients.get_mut(&client) {
                client.progress = now;
            }
        }
        self.leave(n);
        let lock = &mut self.locks[n];
        (lock.mode, lock.policy) = (mode, policy);
        self.enter(n);
        if !mode.writes() {
            self.glimpse_lost(n);
            self.end_deadline(n);
        }
        self.disturb(n);
        self.settle(now, actions);
        self.ask_if_wanted(now, n, actions);
        Ok(())
    }
}

/// The lock after the conversion, if that makes it weaker (or leaves it as it is).
fn weaker(mode: Mode, policy: Policy, to: Convert) -> Option<(Mode, Policy)> {
    match (to, policy) {
        (Convert::Mode(to), Policy::Extent { .. } | Policy::Bits { .. }) => mode.covers(to).then_some((to, policy)),
        (Convert::Bits(to), Policy::Bits { bits, .. }) => {
            (to != 0 && to & !bits == 0).then_some((mode, Policy::bits(to)))
        }
        (Convert::Extent { start, end }, Policy::Extent { start: s, end: e, .. }) => {
            let inside = s <= start && start <= end && end <= e;
            (inside && mode != Mode::Group).then_some((mode, Policy::extent(start, end)))
        }
        _ => None,
    }
}
