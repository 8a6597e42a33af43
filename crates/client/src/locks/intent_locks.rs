//! Intent locks: locks that come with the reply to another request.
//!
//! The client learns from the reply which inodes it is about. So the request names a range of
//! handles, and the locks in the reply use handles from that range. A blocking callback for one of
//! them may overtake the reply. The client then cancels the lock at once, and notes in the
//! [`Range`] that the reply must not use it. After the reply has arrived, the locks have handles of
//! the engine. A later callback finds its lock by resource and server handle.

use std::sync::Arc;

use sheen_ldlm::client::Action;
use sheen_wire::{
    Fid,
    ast::Grant,
    ldlm::{Cookie, LockId, Mode, Policy, Resource},
};

use super::{
    handles::{INTENT, Range},
    table::{LockRef, LockTable},
};

/// Maximum number of superfluous locks whose cancels wait for another request to travel with.
const SPARE_MAX: usize = 64;

/// A request in flight whose reply may bring locks. If it is dropped without the reply, such a lock
/// is cancelled when the server revokes it.
#[derive(Debug)]
pub struct IntentLocks {
    table: Arc<LockTable>,
    first: u64,
}

impl LockTable {
    /// Reserves handles for up to `count` locks.
    pub fn keep(self: &Arc<Self>, count: u64) -> IntentLocks {
        let mut state = self.state.lock();
        let first = INTENT | (state.last_handle + 1);
        state.last_handle += count.max(1);
        state.ranges.insert(first, Range::new(count.max(1)));
        IntentLocks { table: self.clone(), first }
    }
}

impl IntentLocks {
    /// Returns the first handle, to send with the request.
    pub fn cookie(&self) -> Cookie {
        Cookie(self.first)
    }

    /// Takes the reply's locks on inodes. Leaves out the locks that were revoked or lost in the
    /// meantime, and returns whether there are any.
    pub fn granted(self, grants: &[Grant]) -> (Vec<(Fid, LockRef)>, bool) {
        let locks = self.taken(grants.iter().map(|g| (g.id, Resource::bits(g.fid), Policy::bits(g.bits))));
        let is_revoked = locks.len() < grants.len();
        (locks, is_revoked)
    }

    /// Takes the reply's lock on a whole object, like [`IntentLocks::granted`].
    pub fn granted_on(self, object: Fid, id: LockId) -> Option<LockRef> {
        let whole = Policy::extent(0, u64::MAX);
        self.taken([(id, Resource::extent(object), whole)].into_iter()).pop().map(|(_, lock)| lock)
    }

    fn taken(self, grants: impl ExactSizeIterator<Item = (LockId, Resource, Policy)>) -> Vec<(Fid, LockRef)> {
        let table = self.table.clone();
        let mut state = table.state.lock();
        // No range: the table was cleared since, and the server no longer knows these locks.
        let Some(mut range) = state.ranges.remove(&self.first) else { return Vec::new() };
        range.blocked.sort_unstable();
        let mut refs = Vec::with_capacity(grants.len());
        let mut spare = std::mem::take(&mut state.spare);
        table.done(state, |locks, actions| {
            for (id, resource, policy) in grants {
                // Revoked before the reply was here: the reply may be older than another lock that
                // is there now.
                if range.blocked.binary_search(&id).is_ok() {
                    continue;
                }
                let held = match locks.matching(resource, Mode::Pr, &policy) {
                    Some(held) => {
                        spare.push(id);
                        Some(held)
                    }
                    None => {
                        let cookie = locks.begin(resource, Mode::Pr, policy);
                        locks.granted(cookie, id, Mode::Pr, policy, actions);
                        // The remaining part of a lock that was converted before.
                        spare.extend(locks.supersedes(cookie));
                        locks.held(cookie)
                    }
                };
                if let Some(held) = held {
                    let table = self.table.clone();
                    refs.push((resource.fid, LockRef::new(table, &held)));
                }
            }
            if spare.len() > SPARE_MAX || !self.table.travels {
                actions.extend(spare.drain(..).map(|id| Action::Cancel { id }));
            }
        });
        table.state.lock().spare.append(&mut spare);
        refs
    }
}

impl Drop for IntentLocks {
    fn drop(&mut self) {
        self.table.state.lock().ranges.remove(&self.first);
    }
}
