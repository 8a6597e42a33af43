//! Intent locks: locks that come with the reply to another request.
//!
//! The client learns from the reply which inodes it is about. So the request names a range of
//! handles, and the locks in the reply use handles from that range. A blocking callback for one of
//! them may overtake the reply. The client then cancels the lock at once, and notes in the
//! [`Range`] that the reply must not use it. After the reply has arrived, the locks have handles of
//! the engine. A later callback finds its lock by resource and server handle.

use std::{collections::BTreeMap, sync::Arc};

use sheen_ldlm::client::Action;
use sheen_wire::{
    Fid,
    ast::Grant,
    ldlm::{Cookie, LockId, Mode, Policy, Resource},
};

use super::{LockRef, LockTable};

/// Top two bits (0, 1) of the handles of this module; handles of the engine begin with 1.
const KEPT: u64 = 1 << 62;
/// Maximum number of callbacks noted per reply: the number of entries in a directory page. The
/// server repeats a callback that was not noted.
const BLOCKED_MAX: usize = 65_536;

/// Maximum number of superfluous locks whose cancels wait for another request to travel with.
const SPARE_MAX: usize = 64;

/// Handle range of a request in flight.
pub struct Range {
    count: u64,
    blocked: Vec<LockId>,
}

impl Range {
    /// Notes that a lock of the range has been revoked already.
    pub fn blocked(&mut self, id: LockId) {
        if self.blocked.len() < BLOCKED_MAX {
            self.blocked.push(id);
        }
    }
}

/// Whether a handle belongs to this module.
pub fn is_kept(cookie: Cookie) -> bool {
    cookie.0 >> 62 == 1
}

/// Returns the handle range of the request in flight that contains the handle.
pub fn range_of(ranges: &mut BTreeMap<u64, Range>, cookie: Cookie) -> Option<&mut Range> {
    let (first, range) = ranges.range_mut(..=cookie.0).next_back()?;
    (cookie.0 - first < range.count).then_some(range)
}

/// A request in flight whose reply may bring locks. If it is dropped without the reply, such a lock
/// is cancelled when the server revokes it.
#[derive(Debug)]
pub struct Keeping {
    table: Arc<LockTable>,
    first: u64,
}

impl LockTable {
    /// Reserves handles for up to `count` locks.
    pub fn keep(self: &Arc<Self>, count: u64) -> Keeping {
        let mut state = self.state.lock();
        let first = KEPT | (state.last_handle + 1);
        state.last_handle += count.max(1);
        state.ranges.insert(first, Range { count: count.max(1), blocked: Vec::new() });
        Keeping { table: self.clone(), first }
    }
}

impl Keeping {
    /// Returns the first handle, to send with the request.
    pub fn cookie(&self) -> Cookie {
        Cookie(self.first)
    }

    /// Takes the reply's locks on inodes. Leaves out the locks that were revoked or lost in the
    /// meantime.
    pub fn granted(self, grants: &[Grant]) -> Vec<(Fid, LockRef)> {
        self.taken(grants.iter().map(|g| (g.id, Resource::bits(g.fid), Policy::bits(g.bits))))
    }

    /// Takes the reply's lock on a whole object, like [`Keeping::granted`].
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
                    refs.push((resource.fid, LockRef { table, cookie: held.cookie, policy: held.policy }));
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

impl Drop for Keeping {
    fn drop(&mut self) {
        self.table.state.lock().ranges.remove(&self.first);
    }
}
