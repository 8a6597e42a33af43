//! The waits of a lock server, as the parameters `*.*.waits` show them.
//!
//! The engine knows the waiting requests and the locks that conflict. This module adds for which job
//! a request was made and, if the server itself waits, for which client.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use sheen_ldlm::{BlockingLock, ClientId, Namespace, SERVER, WaitingLock};
use sheen_params::{HOLDERS_MAX, Holder, WAITS_MAX, Wait, WaitKind, mode_name, part_of};
use sheen_rpc::Export;
use sheen_rt::{Instant, operation};
use sheen_wire::{JobId, OpId, ldlm::LockId};

/// Entries beyond twice the number of waiting requests, after which those of other requests are
/// removed.
const SLACK: usize = 64;

/// The origins of the waiting requests.
#[derive(Default)]
pub(crate) struct Requesters {
    /// May have entries of requests that wait no longer. Handles are not reused, so they do no
    /// harm.
    by_lock: BTreeMap<LockId, Requester>,
}

struct Requester {
    job: JobId,
    op: OpId,
    /// Uuid and address of the client; `None`: the server acts for no client.
    client: Option<(String, String)>,
}

/// Clients with locks, by the numbers of their exports.
type Clients = FxHashMap<ClientId, Arc<Export>>;

impl Requesters {
    /// Records the origin of a request that waits: the operation that the caller runs for, of this
    /// client.
    pub fn add(&mut self, id: LockId, client: Option<&Export>, ns: &Namespace) {
        let waiting = usize::try_from(ns.stats().waiting).unwrap_or(usize::MAX);
        if self.by_lock.len() > waiting.saturating_mul(2).saturating_add(SLACK) {
            self.by_lock.retain(|id, _| ns.lock(*id).is_some_and(|lock| !lock.granted));
        }
        let client = client.map(|export| (export.client().to_owned(), export.nid().to_string()));
        self.by_lock.insert(id, Requester { job: operation::job(), op: operation::current(), client });
    }

    /// Returns the oldest waits, at most [`WAITS_MAX`].
    pub fn waits(&self, now: Instant, target: &str, ns: &Namespace, clients: &Clients) -> Vec<Wait> {
        let waits = ns.waits(WAITS_MAX, HOLDERS_MAX);
        waits.iter().map(|waiting| self.wait(now, target, waiting, clients)).collect()
    }

    fn wait(&self, now: Instant, target: &str, waiting: &WaitingLock, clients: &Clients) -> Wait {
        let (lock, requester) = (&waiting.info.lock, self.by_lock.get(&waiting.info.lock.id));
        let is_own = lock.client == SERVER;
        let of_export = named(if is_own { waiting.spare } else { lock.client }, clients);
        let (client, nid) = requester.and_then(|by| by.client.clone()).unwrap_or(of_export);
        let op = requester.map(|by| by.op).filter(|op| !op.is_none());
        let wait = Wait {
            secs: now.since(waiting.since).as_secs_f64(),
            kind: if is_own { WaitKind::Cancel } else { WaitKind::Lock },
            target: target.to_owned(),
            client,
            nid,
            job: requester.map_or_else(String::new, |by| by.job.to_string()),
            op: op.map_or_else(String::new, |op| op.to_string()),
            held_by: waiting.blocking.iter().map(|blocking| holder(now, blocking, clients)).collect(),
            ..Wait::default()
        };
        wait.of_lock(waiting.info.resource, lock.mode, &lock.policy)
    }
}

fn holder(now: Instant, blocking: &BlockingLock, clients: &Clients) -> Holder {
    let BlockingLock { lock, granted, since, asked } = blocking;
    let (client, nid) = named(lock.client, clients);
    Holder {
        client,
        nid,
        mode: mode_name(lock.mode),
        part: part_of(&lock.policy),
        granted: *granted,
        secs: now.since(*since).as_secs_f64(),
        callback_secs: asked.map(|asked| now.since(asked).as_secs_f64()),
    }
}

/// Returns uuid and address of a client; empty for the server itself.
fn named(client: ClientId, clients: &Clients) -> (String, String) {
    let export = clients.get(&client);
    export.map(|export| (export.client().to_owned(), export.nid().to_string())).unwrap_or_default()
}
