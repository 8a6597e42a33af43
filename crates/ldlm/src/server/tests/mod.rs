//! Scenarios of the server's side. (Properties over random histories: `tests/` of this crate.)

mod caches;
mod contention;
mod flocks;
mod glimpses;
mod late;
mod sparing;
mod waiting;

use std::time::Duration;

use sheen_rt::Instant;
use sheen_wire::{Fid, ldlm::*};

use super::*;

const MIB: u64 = 1 << 20;
const EOF: u64 = u64::MAX;

/// A namespace, a clock, and the actions returned so far.
struct Scene {
    ns: Namespace,
    now: Instant,
    actions: Vec<Action>,
    cookie: u64,
}

fn object() -> Resource {
    Resource::extent(Fid::new(0x2_8000_0401, 7))
}

fn inode() -> Resource {
    Resource::bits(Fid::new(0x2_0000_0401, 7))
}

fn file() -> Resource {
    Resource::flock(Fid::new(0x2_0000_0401, 7))
}

impl Scene {
    fn new() -> Scene {
        Scene::with(Tunables::default())
    }

    fn with(tunables: Tunables) -> Scene {
        let now = Instant::from_nanos(1_000_000_000_000);
        Scene { ns: Namespace::new(tunables, 3), now, actions: Vec::new(), cookie: 0 }
    }

    fn request(&mut self, client: ClientId, ask: Enqueue) -> Enqueued {
        self.cookie += 1;
        let cookie = Cookie(self.cookie);
        self.ns.enqueue(self.now, client, &Enqueue { cookie, ..ask }, &mut self.actions)
    }

    fn ask(&mut self, client: ClientId, resource: Resource, mode: Mode, policy: Policy) -> Enqueued {
        self.request(client, Enqueue::new(resource, mode, policy, Cookie::NONE))
    }

    fn extent(&mut self, client: ClientId, mode: Mode, start: u64, end: u64) -> Enqueued {
        self.ask(client, object(), mode, Policy::extent(start, end))
    }

    fn bits(&mut self, client: ClientId, mode: Mode, bits: u64) -> Enqueued {
        self.ask(client, inode(), mode, Policy::bits(bits))
    }

    fn flock(&mut self, client: ClientId, mode: Mode, start: u64, end: u64) -> Enqueued {
        self.ask(client, file(), mode, fcntl(1, start, end))
    }

    fn cancel(&mut self, client: ClientId, id: LockId) {
        self.ns.cancel(self.now, client, &[id], &mut self.actions);
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.ns.expire(self.now, &mut self.actions);
    }

    fn done(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The clients that got blocking callbacks.
    fn blocked(&mut self) -> Vec<ClientId> {
        let actions = self.done().into_iter();
        actions.filter_map(|a| if let Action::Block { client, .. } = a { Some(client) } else { None }).collect()
    }

    /// The clients that got completion callbacks, with the ranges granted.
    fn completed(&mut self) -> Vec<(ClientId, (u64, u64))> {
        let actions = self.done().into_iter();
        let one = |a| if let Action::Grant { client, policy, .. } = a { Some((client, policy.range())) } else { None };
        actions.filter_map(one).collect()
    }
}

fn fcntl(owner: u64, start: u64, end: u64) -> Policy {
    Policy::Flock(Flock { start, end, owner, pid: 4711, kind: FlockKind::Posix })
}

fn bsd(owner: u64) -> Policy {
    Policy::Flock(Flock { start: 0, end: 0, owner, pid: 4711, kind: FlockKind::Flock })
}

fn id(answer: Enqueued) -> LockId {
    match answer {
        Enqueued::Granted { id, .. } | Enqueued::Waiting { id } => id,
        other => panic!("no lock: {other:?}"),
    }
}

fn range(answer: Enqueued) -> (u64, u64) {
    match answer {
        Enqueued::Granted { policy, .. } => policy.range(),
        other => panic!("not granted: {other:?}"),
    }
}

fn waits(answer: Enqueued) -> LockId {
    match answer {
        Enqueued::Waiting { id } => id,
        other => panic!("does not wait: {other:?}"),
    }
}
