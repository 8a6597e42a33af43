//! Glimpses: asking writers for an object's size.
//!
//! A client with a write lock may have data that the server has not seen. Only a lock that extends
//! beyond the size known to the server can hide a larger size. A client answers for all its locks
//! on the object. So each client is asked once, through its lock that extends furthest. The
//! object's size is the maximum of all answers and of the size that the server reads *after* them:
//! a client that has cancelled its lock has flushed before.
//!
//! A waiter for answers has a [`Ticket`]. Invariants:
//!
//! * every client asked counts down a ticket once, with [`Action::Glimpsed`]: with its answer, or
//!   with nothing if it has no write lock left. If the lock through which it was asked is dropped
//!   and it has others, it is asked again through one of these;
//! * an answer reflects what its client knew *after* the ticket was issued. Answers do not name the
//!   callback that they belong to. So there is one callback in progress per client and object, and
//!   all tickets issued meanwhile wait for the next one together;
//! * a client that reconnects may answer twice. From then on it is unknown which callback an answer
//!   through the same lock belongs to. So the server sends a blocking callback for that lock
//!   instead, because a lock is cancelled only once. (Exceptions are GROUP locks, which programs
//!   hold.)

use std::{collections::BTreeMap, ops::ControlFlow};

use sheen_rt::Instant;
use sheen_wire::{
    ldlm::{Kind, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use super::{Action, ClientId, Namespace, SERVER, Ticket, conflict::Want, state::Asked};

impl Namespace {
    /// Asks all clients, except `asker`, that may have written beyond `size` bytes. Returns the
    /// number of clients asked, which is the number of [`Action::Glimpsed`] for the ticket. A
    /// client that does not answer within the lock timeout is evicted.
    pub fn glimpse(
        &mut self,
        now: Instant,
        resource: Resource,
        asker: ClientId,
        size: u64,
        ticket: Ticket,
        actions: &mut Vec<Action>,
    ) -> usize {
        let writers = self.writers(resource, size, |client| client != asker && client != SERVER);
        for (client, (_, n)) in &writers {
            if let Some(asked) = self.glimpses.get_mut(&(resource, *client)) {
                asked.next.push(ticket);
                continue;
            }
            self.glimpses.insert((resource, *client), Asked { now: vec![ticket], next: Vec::new() });
            self.send_glimpse(now, *n, actions);
        }
        writers.len()
    }

    /// Handles a client's answer: what the client knows of the object beyond the data that it has
    /// flushed, or nothing. An unexpected answer is ignored.
    pub fn glimpse_answered(
        &mut self,
        now: Instant,
        client: ClientId,
        id: LockId,
        answer: Option<ObjectAttr>,
        actions: &mut Vec<Action>,
    ) {
        let Some(n) = self.find(id).filter(|n| self.locks[*n].client == client) else { return };
        let lock = &mut self.locks[n];
        if !lock.glimpse.now || lock.glimpse.replaced_by_blocking {
            return;
        }
        lock.glimpse.now = false;
        let resource = self.resources[lock.resource].name;
        self.end_deadline(n);
        let Some(asked) = self.glimpses.get_mut(&(resource, client)) else { return };
        actions.extend(asked.now.drain(..).map(|ticket| Action::Glimpsed { ticket, answer }));
        self.glimpse_on(now, resource, client, actions);
    }

    /// Withdraws a ticket that is no longer waited for.
    pub fn glimpse_withdrawn(&mut self, resource: Resource, ticket: Ticket) {
        for (_, asked) in self.glimpses.range_mut((resource, 0)..=(resource, ClientId::MAX)) {
            asked.now.retain(|t| *t != ticket);
            asked.next.retain(|t| *t != ticket);
        }
    }

    /// Continues after the callback to the client about the object has ended: asks again for the
    /// tickets that still wait, or ends them.
    pub(super) fn glimpse_on(&mut self, now: Instant, resource: Resource, client: ClientId, actions: &mut Vec<Action>) {
        let Some(mut asked) = self.glimpses.remove(&(resource, client)) else { return };
        asked.now.append(&mut asked.next);
        if asked.now.is_empty() {
            return;
        }
        match self.writers(resource, 0, |of| of == client).get(&client) {
            Some((_, n)) => {
                self.glimpses.insert((resource, client), asked);
                self.send_glimpse(now, *n, actions);
            }
            None => actions.extend(asked.now.into_iter().map(|ticket| Action::Glimpsed { ticket, answer: None })),
        }
    }

    /// Ends the callback through a lock that is dropped or no longer permits writing.
    pub(super) fn glimpse_lost(&mut self, n: u32) {
        let lock = &mut self.locks[n];
        if std::mem::replace(&mut lock.glimpse.now, false) {
            self.unglimpsed.push((self.resources[lock.resource].name, lock.client));
        }
    }

    /// Notes that the lock's client reconnected: answers through this lock may come twice, and a
    /// callback may have been lost.
    pub(super) fn glimpse_reconnected(&mut self, n: u32) {
        let lock = &mut self.locks[n];
        lock.glimpse.replaced_by_blocking = lock.glimpse.before && lock.mode != Mode::Group;
    }

    /// Returns the request for the blocking callback that replaces a glimpse through a granted
    /// lock.
    pub(super) fn replacement_for_glimpse(&self, n: u32) -> Option<Want> {
        let glimpse = self.locks[n].glimpse;
        let want = Want { client: SERVER, mode: Mode::Pr, policy: Policy::extent(0, u64::MAX), spare: SERVER };
        (glimpse.now && glimpse.replaced_by_blocking).then_some(want)
    }

    /// Sends a glimpse callback to the holder of a lock, or the blocking callback that replaces it.
    pub(super) fn send_glimpse(&mut self, now: Instant, n: u32, actions: &mut Vec<Action>) {
        let lock = &mut self.locks[n];
        (lock.glimpse.now, lock.glimpse.before) = (true, true);
        let asked = lock.asked.is_some();
        match self.replacement_for_glimpse(n) {
            Some(want) if !asked => self.send_blocking(now, n, &want, actions),
            Some(_) => {}
            None => {
                self.stats.glimpse_callbacks += 1;
                let lock = &self.locks[n];
                actions.push(Action::Glimpse { client: lock.client, cookie: lock.cookie, id: lock.id });
                if lock.deadline == Instant::FAR {
                    self.set_deadline(n, now + self.tunables.lock_timeout());
                }
            }
        }
    }

    /// Returns, for each client that `whose` selects, its write lock beyond `size` that extends
    /// furthest: the end and the lock.
    fn writers(
        &self,
        resource: Resource,
        size: u64,
        whose: impl Fn(ClientId) -> bool,
    ) -> BTreeMap<ClientId, (u64, u32)> {
        let mut found: BTreeMap<ClientId, (u64, u32)> = BTreeMap::new();
        let Some(r) = self.by_name.get(&resource).filter(|_| resource.kind == Kind::Extent) else { return found };
        let granted = &self.resources[*r].granted;
        for mode in Mode::ALL.into_iter().filter(|m| m.writes() && !granted[*m as usize].is_empty()) {
            let _ = self.nodes.overlapping(&granted[mode as usize], (size, u64::MAX), u64::MAX, &mut |n| {
                let lock = &self.locks[n];
                if whose(lock.client) {
                    let best = found.entry(lock.client).or_default();
                    *best = (lock.policy.range().1, n).max(*best);
                }
                ControlFlow::Continue(())
            });
        }
        found
    }
}
