//! Asking writers how large an object is.
//!
//! A client with a write lock may have data that the server has not seen. Only a lock that reaches
//! beyond the size that the server knows can hide a larger one; and a client answers for all of its
//! locks on the object. So each client is asked once, through that of its locks which reaches
//! furthest. The object's size is the largest of what they answer and of what the server knows
//! *after* they have answered: a client whose lock is gone has flushed before.
//!
//! Who waits for answers is a [`Ticket`]. Invariants:
//!
//! * every client asked ends a ticket once, by [`Action::Glimpsed`]: with its answer, or with
//!   nothing when it has no write lock left. If the lock through which it was asked goes and it has
//!   others, it is asked again through one of these;
//! * an answer tells what its client knew *after* the ticket came. Answers do not say which
//!   callback they are for, so of a client and an object there is one callback under way at a time,
//!   and all that come meanwhile wait for the next one together;
//! * a client that comes back may answer twice. From then on nobody can tell what an answer through
//!   the same lock is for, so that lock is asked back instead: there is only one cancel of it.
//!   (GROUP locks are not, for programs hold them.)

use std::{collections::BTreeMap, ops::ControlFlow};

use sheen_rt::Instant;
use sheen_wire::{
    ldlm::{Kind, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use super::{Action, ClientId, Namespace, SERVER, conflict::Want};

/// Who waits for the answers to a glimpse: a number that the owner of the [`Namespace`] uses once.
pub type Ticket = u64;

/// A callback under way to a client, on an object.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Who waits for its answer.
    now: Vec<Ticket>,
    /// Who came after it went out.
    next: Vec<Ticket>,
}

/// What a lock has to do with glimpses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Glimpse {
    /// A callback through this lock is under way.
    pub now: bool,
    /// There was one, ever.
    before: bool,
    /// It is asked back instead.
    doubtful: bool,
}

impl Namespace {
    /// Asks the clients, other than `asker`, whose writes may reach beyond `size` bytes. Returns
    /// how many are asked: so often the ticket will end. A client that does not answer within the
    /// lock timeout is evicted.
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

    /// A client answered: what it knows of the object beyond what it has written, or nothing. An
    /// answer that nobody waits for is ignored.
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
        if !lock.glimpse.now || lock.glimpse.doubtful {
            return;
        }
        lock.glimpse.now = false;
        let resource = self.resources[lock.resource].name;
        self.end_deadline(n);
        let Some(asked) = self.glimpses.get_mut(&(resource, client)) else { return };
        actions.extend(asked.now.drain(..).map(|ticket| Action::Glimpsed { ticket, answer }));
        self.glimpse_on(now, resource, client, actions);
    }

    /// Nobody waits for the ticket any longer.
    pub fn glimpse_withdrawn(&mut self, resource: Resource, ticket: Ticket) {
        for (_, asked) in self.glimpses.range_mut((resource, 0)..=(resource, ClientId::MAX)) {
            asked.now.retain(|t| *t != ticket);
            asked.next.retain(|t| *t != ticket);
        }
    }

    /// No callback to the client on the object is under way any more: asks again for those that
    /// still wait, or ends their tickets.
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

    /// The lock goes, or permits no writing any more.
    pub(super) fn glimpse_lost(&mut self, n: u32) {
        let lock = &mut self.locks[n];
        if std::mem::replace(&mut lock.glimpse.now, false) {
            self.unglimpsed.push((self.resources[lock.resource].name, lock.client));
        }
    }

    /// The lock's client came back: answers through this lock may come twice, and a callback may be
    /// lost.
    pub(super) fn glimpse_doubted(&mut self, n: u32) {
        let lock = &mut self.locks[n];
        lock.glimpse.doubtful = lock.glimpse.before && lock.mode != Mode::Group;
    }

    /// What a granted lock is asked back for on behalf of those that wait for a glimpse.
    pub(super) fn doubting(&self, n: u32) -> Option<Want> {
        let glimpse = self.locks[n].glimpse;
        let want = Want { client: SERVER, mode: Mode::Pr, policy: Policy::extent(0, u64::MAX), spare: SERVER };
        (glimpse.now && glimpse.doubtful).then_some(want)
    }

    /// Asks the holder of a lock.
    pub(super) fn send_glimpse(&mut self, now: Instant, n: u32, actions: &mut Vec<Action>) {
        let lock = &mut self.locks[n];
        (lock.glimpse.now, lock.glimpse.before) = (true, true);
        let asked = lock.asked.is_some();
        match self.doubting(n) {
            Some(want) if !asked => self.ask(now, n, &want, actions),
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

    /// By client, of those that `whose` picks: the furthest end of its write locks that reach
    /// beyond `size`, and which it is.
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
