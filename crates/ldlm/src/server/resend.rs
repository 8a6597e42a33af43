//! Resend: repeats the callbacks that a client may have missed when it reconnects.

use sheen_rt::Instant;
use sheen_wire::ldlm::LockId;

use super::{Action, ClientId, Namespace};

impl Namespace {
    /// Sends again what the client may have missed: unconfirmed completion callbacks, blocking
    /// callbacks (with new deadlines), and glimpses. The client itself resends requests whose
    /// replies it missed.
    pub fn resend(&mut self, now: Instant, client: ClientId, actions: &mut Vec<Action>) {
        for n in self.of_client(client) {
            let lock = &self.locks[n];
            if lock.unconfirmed && !lock.waiting {
                let (cookie, id, mode, policy) = (lock.cookie, lock.id, lock.mode, lock.policy);
                actions.push(Action::Grant { client, cookie, id, mode, policy });
                self.stats.completion_callbacks += 1;
            }
            self.glimpse_reconnected(n);
            if self.locks[n].asked.is_some() {
                self.resend_blocking(now, n, actions);
            }
            if self.locks[n].glimpse.now {
                self.send_glimpse(now, n, actions);
            }
        }
    }

    /// Notes that the client has received the completion callback of this lock.
    pub fn confirm(&mut self, client: ClientId, id: LockId) {
        if let Some(n) = self.find(id).filter(|n| self.locks[*n].client == client) {
            self.locks[n].unconfirmed = false;
        }
    }

    /// Sends a blocking callback again if a request still waits for the lock. Otherwise marks the
    /// lock as one without a blocking callback.
    fn resend_blocking(&mut self, now: Instant, n: u32, actions: &mut Vec<Action>) {
        let Some(want) = self.waiting_request(n) else {
            self.set_asked(n, None);
            self.end_deadline(n);
            return;
        };
        self.begin_deadline(now, n);
        self.queue_blocking(n, &want, actions);
    }
}
