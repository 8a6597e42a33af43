//! The operations that wait for an import's target.

use std::time::Duration;

use sheen_params::{WAITS_MAX, Wait, WaitKind};
use sheen_rt::{Instant, operation::Operation};
use sheen_wire::{JobId, Protocol, frame};

use super::{
    Import,
    link::{ImportState, Pending},
};
use crate::waits::{Awaited, WaitEntry, Waits};

/// Age from which on a request without a reply counts as waiting, while the target is connected.
const REPLY_AFTER: Duration = Duration::from_secs(1);

impl<P: Protocol> Import<P> {
    /// Returns the register of waits for this target.
    pub fn waits(&self) -> &Waits {
        &self.inner.waits
    }

    /// Returns the operations that wait for this target. `lock_of` returns the lock that a request
    /// may have to wait for. Other requests without a reply count after one second, and at once if
    /// the target is disconnected.
    pub fn waiting(&self, lock_of: impl Fn(&P::Request) -> Option<Awaited>) -> Vec<Wait> {
        let (now, state) = (self.inner.net.rt().now(), self.state());
        let mut waiting = self.inner.waits.all();
        let requests: Vec<_> = {
            let link = self.inner.link.lock();
            let pending = link.pending.values().filter(|pending| !pending.recovering());
            let parts = |pending: &Pending| (pending.since(), pending.frame.header, pending.frame.body.clone());
            pending.take(WAITS_MAX).map(parts).collect()
        };
        waiting.extend(requests.into_iter().filter_map(|(since, header, body)| {
            let (request, job) = JobId::split_from(&body, header.job_len).ok()?;
            let request: P::Request = frame::from_body(request).ok()?;
            let awaited = lock_of(&request).unwrap_or_else(|| Awaited::Reply(P::op(&request)));
            Some(WaitEntry { since, operation: Operation { id: header.op_id, job }, awaited })
        }));
        waiting.retain(|entry| {
            let is_reply = matches!(entry.awaited, Awaited::Reply(_));
            !is_reply || state != ImportState::Full || now.since(entry.since) >= REPLY_AFTER
        });
        waiting.iter().map(|entry| self.wait(now, state, entry)).collect()
    }

    fn wait(&self, now: Instant, state: ImportState, entry: &WaitEntry) -> Wait {
        let WaitEntry { since, operation: Operation { id, job }, awaited } = *entry;
        let wait = Wait {
            secs: now.since(since).as_secs_f64(),
            target: self.target().to_owned(),
            client: self.client_uuid().to_owned(),
            job: job.to_string(),
            op: if id.is_none() { String::new() } else { id.to_string() },
            state: state.to_string(),
            ..Wait::default()
        };
        match awaited {
            Awaited::Slot(request) => Wait { kind: WaitKind::Slot, request: request.to_owned(), ..wait },
            Awaited::Connection if state == ImportState::Recover => Wait { kind: WaitKind::Recovery, ..wait },
            Awaited::Connection => Wait { kind: WaitKind::Connection, ..wait },
            Awaited::Dirty => Wait { kind: WaitKind::Dirty, ..wait },
            Awaited::Reply(request) => Wait { kind: WaitKind::Reply, request: request.to_owned(), ..wait },
            Awaited::Lock { resource, mode, policy } => {
                Wait { kind: WaitKind::Lock, ..wait }.of_lock(resource, mode, &policy)
            }
        }
    }
}
