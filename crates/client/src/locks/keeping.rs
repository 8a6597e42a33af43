//! Locks that come with answers.
//!
//! Which inodes an answer is about is known when it arrives, so the request names a range of
//! handles, and the answer's locks have handles of the range. A callback for one of them may
//! overtake the answer: the lock is given back at once, and it is noted in the [`Range`] that it is
//! not to be used. Once the answer is there the engine's own handles are used, and a callback finds
//! the lock by its resource and the server's handle.

use std::{collections::BTreeMap, sync::Arc};

use sheen_ldlm::client::Action;
use sheen_wire::{
    Fid,
    ast::Grant,
    ldlm::{Cookie, LockId, Mode, Policy, Resource},
};

use super::{LockRef, LockTable};

/// Handles of this module begin with these two bits (0, 1); the engine's begin with 1.
const KEPT: u64 = 1 << 62;
/// Callbacks noted for one answer: as many as a page of a directory has entries. What is beyond is
/// told again when the server asks again.
const BLOCKED_MAX: usize = 65_536;

/// Superfluous locks that wait for a request with which to be given back.
const SPARE_MAX: usize = 64;

/// Handles of one request under way.
pub struct Range {
    count: u64,
    blocked: Vec<LockId>,
}

impl Range {
    /// A lock of the range has been asked for already.
    pub fn blocked(&mut self, id: LockId) {
        if self.blocked.len() < BLOCKED_MAX {
            self.blocked.push(id);
        }
    }
}

/// Whether a handle is of this module.
pub fn is_kept(cookie: Cookie) -> bool {
    cookie.0 >> 62 == 1
}

/// The request under way that has the handle.
pub fn range_of(ranges: &mut BTreeMap<u64, Range>, cookie: Cookie) -> Option<&mut Range> {
    let (first, range) = ranges.range_mut(..=cookie.0).next_back()?;
    (cookie.0 - first < range.count).then_some(range)
}

/// A request under way whose answer may bring locks. Dropped without the answer, they are given
/// back when the server asks.
#[derive(Debug)]
pub struct Keeping {
    table: Arc<LockTable>,
    first: u64,
}

impl LockTable {
    /// Handles for up to `count` locks.
    pub fn keep(self: &Arc<Self>, count: u64) -> Keeping {
        let mut state = self.state.lock();
        let first = KEPT | (state.last_handle + 1);
        state.last_handle += count.max(1);
        state.ranges.insert(first, Range { count: count.max(1), blocked: Vec::new() });
        Keeping { table: self.clone(), first }
    }
}

impl Keeping {
    /// The first handle, to send.
    pub fn cookie(&self) -> Cookie {
        Cookie(self.first)
    }

    /// Takes the answer's locks on inodes. Those that were asked for meanwhile, or lost, are not
    /// among them.
    pub fn granted(self, grants: &[Grant]) -> Vec<(Fid, LockRef)> {
        self.taken(grants.iter().map(|g| (g.id, Resource::bits(g.fid), Policy::bits(g.bits))))
    }

    /// Takes the answer's lock on all of an object, as [`Keeping::granted`].
    pub fn granted_on(self, object: Fid, id: LockId) -> Option<LockRef> {
        let whole = Policy::extent(0, u64::MAX);
        self.taken([(id, Resource::extent(object), whole)].into_iter()).pop().map(|(_, lock)| lock)
    }

    fn taken(self, grants: impl ExactSizeIterator<Item = (LockId, Resource, Policy)>) -> Vec<(Fid, LockRef)> {
        let table = self.table.clone();
        let mut state = table.state.lock();
        // Forgotten: the locks are those of a server that has forgotten this client since.
        let Some(mut range) = state.ranges.remove(&self.first) else { return Vec::new() };
        range.blocked.sort_unstable();
        let mut refs = Vec::with_capacity(grants.len());
        let mut spare = std::mem::take(&mut state.spare);
        table.done(state, |locks, actions| {
            for (id, resource, policy) in grants {
                let there = locks.matching(resource, Mode::Pr, &policy);
                let held = match there {
                    // Asked for meanwhile, and given back.
                    _ if range.blocked.binary_search(&id).is_ok() => there,
                    Some(held) => {
                        spare.push(id);
                        Some(held)
                    }
                    None => {
                        let cookie = locks.begin(resource, Mode::Pr, policy);
                        locks.granted(cookie, id, Mode::Pr, policy, actions);
                        // What was left of a lock of which a part had been asked for.
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
