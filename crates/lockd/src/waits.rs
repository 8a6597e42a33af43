//! The waits of a lock server, as the parameters `*.*.waits` show them.
//!
//! The engine knows the waiting requests and the locks that conflict. This module adds for which
//! job a request was made and, if the server itself waits, for which client. Under the mutex of
//! the lock server it only collects data; it makes the texts without the mutex.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use sheen_ldlm::{BlockingLock, ClientId, Namespace, SERVER, WaitingLock};
use sheen_params::{HOLDERS_MAX, Holder, WAITS_MAX, Wait, WaitKind, part_of};
use sheen_rpc::Export;
use sheen_rt::{Instant, operation};
use sheen_wire::{JobId, OpId, ldlm::LockId};

/// Maximum number of entries, which bounds the memory that clients can take up. The requests that
/// began to wait after that are listed without job and operation.
const ENTRIES_MAX: usize = 4096;
/// The table is searched for entries of ended requests when it has more than twice as many entries
/// as requests wait, plus this number. So a search is rare, and a small table is never searched.
const SLACK: usize = 64;

/// The origins of the waiting requests.
#[derive(Default)]
pub(crate) struct Requesters {
    /// Grants and cancels remove entries, evictions do not: entries of ended requests remain until
    /// the next search. Handles are not reused, so they do no harm.
    by_lock: BTreeMap<LockId, Requester>,
}

#[derive(Clone)]
struct Requester {
    job: JobId,
    op: OpId,
    /// Uuid and address of the client for which the server acts; `None`: there is none, or the
    /// client itself requested the lock, and the lock server knows its export.
    client: Option<Arc<(String, String)>>,
}

/// A waiting request, and the clients that it concerns.
pub(crate) struct Waiting {
    lock: WaitingLock,
    requester: Option<Requester>,
    /// The client that waits, or for which the server waits, if it is known.
    client: Option<Arc<Export>>,
    /// The clients of `lock.blocking`, in its order.
    holders: Vec<Option<Arc<Export>>>,
}

/// Clients with locks, by the numbers of their exports.
type Clients = FxHashMap<ClientId, Arc<Export>>;

impl Requesters {
    /// Records the origin of a request that waits: the operation that the caller runs for.
    /// `client`: the client for which the server itself requested the lock. It may have no locks,
    /// or disconnect before the server's wait ends.
    pub fn add(&mut self, id: LockId, client: Option<&Export>, ns: &Namespace) {
        let waiting = usize::try_from(ns.stats().waiting).unwrap_or(usize::MAX);
        if self.by_lock.len() > waiting.saturating_mul(2).saturating_add(SLACK) {
            self.by_lock.retain(|id, _| ns.lock(*id).is_some_and(|lock| !lock.granted));
        }
        if self.by_lock.len() >= ENTRIES_MAX {
            return;
        }
        let client = client.map(|export| Arc::new(named(export)));
        self.by_lock.insert(id, Requester { job: operation::job(), op: operation::current(), client });
    }

    /// Removes the entry of a request that no longer waits.
    pub fn remove(&mut self, id: LockId) {
        self.by_lock.remove(&id);
    }

    /// Removes the entries of those requests that no longer exist. The others belong to clients
    /// that did not cancel them.
    pub fn remove_ended(&mut self, ids: &[LockId], ns: &Namespace) {
        if self.by_lock.is_empty() {
            return;
        }
        for id in ids {
            if ns.lock(*id).is_none() {
                self.by_lock.remove(id);
            }
        }
    }

    /// Returns the oldest waiting requests, at most [`WAITS_MAX`], oldest first.
    pub fn waiting(&self, ns: &Namespace, clients: &Clients) -> Vec<Waiting> {
        let waits = ns.waits(WAITS_MAX, HOLDERS_MAX).into_iter();
        waits.map(|lock| self.with_clients(lock, clients)).collect()
    }

    fn with_clients(&self, lock: WaitingLock, clients: &Clients) -> Waiting {
        let client = if is_own(&lock) { lock.spare } else { lock.info.lock.client };
        Waiting {
            requester: self.by_lock.get(&lock.info.lock.id).cloned(),
            client: clients.get(&client).cloned(),
            holders: lock.blocking.iter().map(|blocking| clients.get(&blocking.lock.client).cloned()).collect(),
            lock,
        }
    }
}

impl Waiting {
    /// Returns the wait with all texts.
    pub fn wait(&self, now: Instant, target: &str) -> Wait {
        let WaitingLock { info, since, blocking, .. } = &self.lock;
        let requester = self.requester.as_ref();
        let (client, nid) = match requester.and_then(|by| by.client.as_deref()) {
            Some(client) => client.clone(),
            None => self.client.as_deref().map(named).unwrap_or_default(),
        };
        let op = requester.map(|by| by.op).filter(|op| !op.is_none());
        let wait = Wait {
            secs: now.since(*since).as_secs_f64(),
            kind: if is_own(&self.lock) { WaitKind::Cancel } else { WaitKind::Lock },
            target: target.to_owned(),
            client,
            nid,
            job: requester.map_or_else(String::new, |by| by.job.to_string()),
            op: op.map_or_else(String::new, |op| op.to_string()),
            held_by: blocking
                .iter()
                .zip(&self.holders)
                .map(|(lock, client)| holder(now, lock, client.as_deref()))
                .collect(),
            ..Wait::default()
        };
        wait.of_lock(info.resource, info.lock.mode, &info.lock.policy)
    }
}

fn holder(now: Instant, blocking: &BlockingLock, client: Option<&Export>) -> Holder {
    let BlockingLock { lock, granted, since, asked } = blocking;
    let (client, nid) = client.map(named).unwrap_or_default();
    Holder {
        client,
        nid,
        mode: lock.mode.name().to_owned(),
        part: part_of(&lock.policy),
        granted: *granted,
        secs: now.since(*since).as_secs_f64(),
        callback_secs: asked.map(|asked| now.since(asked).as_secs_f64()),
    }
}

/// Whether the server itself waits.
fn is_own(waiting: &WaitingLock) -> bool {
    waiting.info.lock.client == SERVER
}

/// Returns uuid and address of a client.
fn named(export: &Export) -> (String, String) {
    (export.client().to_owned(), export.nid().to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use sheen_ldlm::Tunables;
    use sheen_wire::{
        Fid,
        ldlm::{Cookie, Enqueue, Enqueued, Mode, Policy, Resource},
    };

    use super::*;

    const HOLDER: ClientId = 11;
    const WAITER: ClientId = 12;

    /// Makes a request for object number `n` wait for a lock of another client. Returns its id.
    fn waiting(ns: &mut Namespace, n: u32) -> LockId {
        let (resource, whole) = (Resource::extent(Fid::new(7, n)), Policy::extent(0, u64::MAX));
        let ask = Enqueue::new(resource, Mode::Pw, whole, Cookie(u64::from(n)));
        let (now, mut actions) = (Instant::from_nanos(u64::from(n)), Vec::new());
        assert!(matches!(ns.enqueue(now, HOLDER, &ask, &mut actions), Enqueued::Granted { .. }));
        match ns.enqueue(now, WAITER, &ask, &mut actions) {
            Enqueued::Waiting { id } => id,
            other => panic!("{other:?}"),
        }
    }

    /// Records a request of a job.
    fn add(requesters: &mut Requesters, id: LockId, ns: &Namespace) {
        let adds = operation::within(JobId::new(b"dd.1000"), async { requesters.add(id, None, ns) });
        assert!(pin!(adds).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    /// Returns the jobs of the waits, the oldest first.
    fn jobs(requesters: &Requesters, ns: &Namespace) -> Vec<String> {
        let waiting = requesters.waiting(ns, &Clients::default());
        waiting.iter().map(|waiting| waiting.wait(Instant::ZERO, "sheen-OST0000").job).collect()
    }

    #[test]
    fn requests_beyond_the_bound_are_listed_without_job() {
        let (mut requesters, mut ns) = (Requesters::default(), Namespace::new(Tunables::default(), 1));
        let all = ENTRIES_MAX as u32 + 1;
        let ids: Vec<LockId> = (1..=all).map(|n| waiting(&mut ns, n)).collect();
        ids.iter().for_each(|id| add(&mut requesters, *id, &ns));
        assert_eq!(requesters.by_lock.len(), ENTRIES_MAX);
        // As after an eviction: the requests have ended, and their entries are still there.
        let (ended, _) = ids.split_at(ENTRIES_MAX);
        ns.cancel(Instant::from_nanos(u64::from(all)), WAITER, ended, &mut Vec::new());
        assert_eq!(jobs(&requesters, &ns), [""], "the last request found no room");
        // The next request removes them, and finds room.
        let next = waiting(&mut ns, all + 1);
        add(&mut requesters, next, &ns);
        assert_eq!(jobs(&requesters, &ns), ["", "dd.1000"]);
        assert_eq!(requesters.by_lock.len(), 1);
    }
}
