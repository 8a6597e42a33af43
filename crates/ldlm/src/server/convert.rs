//! Convert: weakening a granted lock in place, so that the holder keeps the part that no other
//! client needs.
//!
//! Contract:
//! * the conversion takes effect at once, and requests blocked only by the released part are
//!   granted;
//! * if other requests still wait for the remaining lock, the holder gets another blocking
//!   callback;
//! * a conversion that would make the lock stronger or empty is refused and changes nothing. So a
//!   conversion that arrives twice, or after a further one, does no harm.

use sheen_rt::Instant;
use sheen_wire::{
    Errno,
    ldlm::{Convert, LockId, Mode, Policy},
};

use super::{Action, ClientId, Namespace};

impl Namespace {
    /// Weakens a lock that the client was granted. ENOENT: it has no such lock. EINVAL: the result
    /// would not be weaker.
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
            // Nothing is released, so a blocking callback remains unanswered.
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
        self.schedule_watchers(n);
        self.settle(now, actions);
        self.send_blocking_if_wanted(now, n, actions);
        Ok(())
    }
}

/// Returns mode and policy after the conversion, if they are weaker than (or equal to) the present
/// ones.
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
