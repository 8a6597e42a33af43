//! The locks of the fake targets. They are granted without conflicts, if they are on.

use std::{collections::BTreeMap, sync::Arc};

use sheen_rpc::Export;
use sheen_wire::{
    Fid,
    ast::Grant,
    ldlm::{Conflict, Cookie, Enqueue, Enqueued, LockId, Mode, Resource},
};

pub struct Held {
    /// The OST that granted the lock; `None`: the MDT.
    pub ost: Option<u32>,
    pub resource: Resource,
    pub cookie: Cookie,
}

#[derive(Default)]
pub struct FakeLocks {
    /// Whether locks are granted to requests that do not wait.
    pub on: bool,
    /// Inode bits that are not granted.
    pub refused: u64,
    pub next: u64,
    pub held: BTreeMap<LockId, Held>,
    /// Converts: the bits that the client retains of each lock.
    pub converted: Vec<(LockId, u64)>,
    /// Whether flock requests wait instead of being granted.
    pub flock_waits: bool,
    /// Whether another client has a group lock on each object.
    pub others_group: bool,
    pub mds: Option<Arc<Export>>,
    pub osts: BTreeMap<u32, Arc<Export>>,
}

impl FakeLocks {
    fn grant(&mut self, ost: Option<u32>, resource: Resource, cookie: Cookie) -> LockId {
        self.next += 1;
        self.held.insert(LockId(self.next), Held { ost, resource, cookie });
        LockId(self.next)
    }

    pub fn keep(&mut self, keep: Option<Cookie>, inodes: &[(Fid, u64)]) -> Vec<Grant> {
        let Some(first) = keep.filter(|_| self.on) else { return Vec::new() };
        let grant = |(i, &(fid, bits)): (usize, &(Fid, u64))| {
            let cookie = Cookie(first.0 + i as u64);
            let id = self.grant(None, Resource::bits(fid), cookie);
            Grant { id, cookie, fid, bits: bits & !self.refused }
        };
        inodes.iter().enumerate().map(grant).collect()
    }

    pub fn enqueue(&mut self, ost: Option<u32>, lock: &Enqueue) -> Enqueued {
        let in_group = self.others_group && ost.is_some();
        if (in_group || !self.on) && lock.flags.nowait {
            let mode = if in_group { Mode::Group } else { Mode::Pw };
            let by = Conflict { client: 9, id: LockId(1), mode, policy: lock.policy };
            return Enqueued::WouldBlock { by };
        }
        let id = self.grant(ost, lock.resource, lock.cookie);
        Enqueued::Granted { id, mode: lock.mode, policy: lock.policy }
    }

    pub fn flock(&mut self, lock: &Enqueue) -> Enqueued {
        let (mode, policy) = (lock.mode, lock.policy);
        if lock.mode == Mode::Nl || lock.flags.test {
            return Enqueued::Granted { id: LockId::NONE, mode, policy };
        }
        let id = self.grant(None, lock.resource, lock.cookie);
        if self.flock_waits && !lock.flags.nowait {
            Enqueued::Waiting { id }
        } else {
            Enqueued::Granted { id, mode, policy }
        }
    }

    pub fn cancel(&mut self, ost: Option<u32>, ids: &[LockId]) {
        ids.iter().for_each(|id| {
            assert!(self.held.get(id).is_none_or(|held| held.ost == ost), "its target cancels a lock");
            self.held.remove(id);
        });
    }

    /// Returns the number of locks on a resource.
    pub fn count(&self, resource: Resource) -> usize {
        self.held.values().filter(|held| held.resource == resource).count()
    }
}
