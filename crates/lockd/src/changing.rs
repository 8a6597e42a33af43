//! Changes in progress: the server's own locks, by resource.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use sheen_wire::ldlm::{LockId, Mode, Policy, Resource};
use tokio::sync::{Notify, futures::OwnedNotified};

/// The server's own locks that conflict with PR locks.
#[derive(Default)]
pub(crate) struct Changing {
    resources: FxHashMap<Resource, Changes>,
}

/// The changes of one resource: nearly always one, which needs no allocation.
struct Changes {
    first: RunningChange,
    more: Vec<RunningChange>,
    /// Notifies tasks that wait for the changes to end.
    watchers: Option<Arc<Notify>>,
}

#[derive(Clone, Copy)]
struct RunningChange {
    id: LockId,
    policy: Policy,
}

impl Changing {
    pub fn add(&mut self, resource: Resource, id: LockId, mode: Mode, policy: Policy) {
        if Mode::compatible(mode, Mode::Pr) {
            return;
        }
        let change = RunningChange { id, policy };
        self.resources.entry(resource).and_modify(|changes| changes.more.push(change)).or_insert(Changes {
            first: change,
            more: Vec::new(),
            watchers: None,
        });
    }

    /// Ends a change. Returns the watchers to notify.
    pub fn remove(&mut self, resource: Resource, id: LockId) -> Option<Arc<Notify>> {
        let changes = self.resources.get_mut(&resource)?;
        if changes.first.id != id {
            changes.more.retain(|c| c.id != id);
            return changes.watchers.take();
        }
        match changes.more.pop() {
            Some(other) => {
                changes.first = other;
                changes.watchers.take()
            }
            None => self.resources.remove(&resource)?.watchers,
        }
    }

    pub fn conflicts(&self, resource: Resource, policy: &Policy) -> bool {
        self.resources.get(&resource).is_some_and(|changes| {
            changes.first.policy.overlaps(policy) || changes.more.iter().any(|c| c.policy.overlaps(policy))
        })
    }

    /// Returns a future that is ready when one of the resource's changes has ended. `None`: no
    /// change conflicts.
    pub fn watch(&mut self, resource: Resource, policy: &Policy) -> Option<OwnedNotified> {
        if !self.conflicts(resource, policy) {
            return None;
        }
        let changes = self.resources.get_mut(&resource)?;
        Some(changes.watchers.get_or_insert_default().clone().notified_owned())
    }
}
