//! Asking writers how large an object is.
//!
//! A client with a write lock may have data that the server has not seen. Only a lock that reaches beyond the size that the server
//! knows can hide a larger one; and a client answers for all of its locks. So each client is asked once, through that of its
//! locks which reaches furthest. The object's size is the largest of what they answer and of what the server knows *after* they have
//! answered: a client whose lock is gone has flushed before.

use std::{collections::BTreeMap, ops::ControlFlow};

use sheen_rt::Instant;
use sheen_wire::ldlm::{LockId, Mode, Resource};

use super::{Action, ClientId, Namespace, SERVER};

impl Namespace {
    /// Asks the clients, other than `asker`, whose writes may reach beyond `size` bytes. Returns how many are asked; each has to answer
    /// within the lock timeout.
    pub fn glimpse(
        &mut self,
        now: Instant,
        resource: Resource,
        asker: ClientId,
        size: u64,
        actions: &mut Vec<Action>,
    ) -> usize {
        let Some(r) = self.by_name.get(&resource) else { return 0 };
        let res = &self.resources[*r];
        // By client: the furthest end, and which lock it is.
        let mut furthest: BTreeMap<ClientId, (u64, u32)> = BTreeMap::new();
        for mode in Mode::ALL.into_iter().filter(|m| m.writes()) {
            let _ = self.nodes.overlapping(&res.granted[mode as usize], (size, u64::MAX), u64::MAX, &mut |n| {
                let lock = &self.locks[n];
                if lock.client != SERVER && lock.client != asker {
                    let best = furthest.entry(lock.client).or_default();
                    *best = (lock.policy.range().1, n).max(*best);
                }
                ControlFlow::Continue(())
            });
        }
        for (client, (_, n)) in &furthest {
            self.stats.glimpse_callbacks += 1;
            let lock = &mut self.locks[*n];
            lock.glimpses += 1;
            actions.push(Action::Glimpse { client: *client, cookie: lock.cookie, id: lock.id });
            if lock.deadline == Instant::FAR {
                self.set_deadline(*n, now + self.tunables.lock_timeout());
            }
        }
        furthest.len()
    }

    /// A client answered a glimpse. Returns whether it holds the lock still; if not, what it wrote has reached the server.
    pub fn glimpse_answered(&mut self, client: ClientId, id: LockId) -> bool {
        let Some(n) = self.find(id).filter(|n| self.locks[*n].client == client) else { return false };
        let lock = &mut self.locks[n];
        lock.glimpses = lock.glimpses.saturating_sub(1);
        self.end_deadline(n);
        true
    }
}
