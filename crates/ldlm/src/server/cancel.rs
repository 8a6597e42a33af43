//! Giving locks back.
//!
//! Contract: afterwards the locks are gone, granted or waiting, and what waited for them alone is
//! granted. Handles that name nothing, or another client's lock, are ignored: a cancel may arrive
//! twice, or late.

use sheen_rt::Instant;
use sheen_wire::ldlm::{LockId, Policy};

use super::{Action, ClientId, Namespace, SERVER};

impl Namespace {
    /// A client gives locks back, or stops waiting for them.
    pub fn cancel(&mut self, now: Instant, client: ClientId, ids: &[LockId], actions: &mut Vec<Action>) {
        for id in ids {
            let Some(n) = self.find(*id).filter(|n| self.locks[*n].client == client) else { continue };
            if self.locks[n].asked.is_some()
                && let Some(client) = self.clients.get_mut(&client)
            {
                client.progress = now;
            }
            self.drop_lock(n);
            self.stats.cancelled += u64::from(client != SERVER);
        }
        self.settle(now, actions);
    }

    /// A client is gone: so are its locks.
    pub fn evict(&mut self, now: Instant, client: ClientId, actions: &mut Vec<Action>) {
        for n in self.of_client(client) {
            self.drop_lock(n);
        }
        self.settle(now, actions);
    }

    /// A program's lock owner is gone: so are its fcntl and flock locks, in all files, and its
    /// requests that wait.
    pub fn release_owner(&mut self, now: Instant, client: ClientId, owner: u64, actions: &mut Vec<Action>) {
        for n in self.of_client(client) {
            if matches!(self.locks[n].policy, Policy::Flock(f) if f.owner == owner) {
                self.drop_lock(n);
            }
        }
        self.settle(now, actions);
    }
}
