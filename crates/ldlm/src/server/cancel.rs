//! Cancel: dropping locks.
//!
//! Contract: afterwards the locks no longer exist, granted or waiting, and requests blocked only by
//! them are granted. Handles that name no lock, or a lock of another client, are ignored: a cancel
//! may arrive twice, or late.

use sheen_rt::Instant;
use sheen_wire::ldlm::{LockId, Policy};

use super::{Action, ClientId, Namespace, SERVER};

impl Namespace {
    /// Cancels locks or waiting requests of a client.
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

    /// Drops all locks of a client that was disconnected or evicted.
    pub fn evict(&mut self, now: Instant, client: ClientId, actions: &mut Vec<Action>) {
        for n in self.of_client(client) {
            self.drop_lock(n);
        }
        self.settle(now, actions);
    }

    /// Drops all fcntl and flock locks of a lock owner that has exited, in all files, and its
    /// waiting requests.
    pub fn release_owner(&mut self, now: Instant, client: ClientId, owner: u64, actions: &mut Vec<Action>) {
        for n in self.of_client(client) {
            if matches!(self.locks[n].policy, Policy::Flock(f) if f.owner == owner) {
                self.drop_lock(n);
            }
        }
        self.settle(now, actions);
    }
}
