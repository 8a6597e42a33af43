//! Callbacks of the fake targets for the locks that they granted.

use sheen_wire::{
    Mds, Ost,
    ast::Callback,
    changelog::Record,
    ldlm::{Mode, Policy, Resource, bits},
};

use super::{locks::Held, world::World};

impl World {
    /// Revokes all locks on a resource. Returns their number.
    pub fn revoke(&self, resource: Resource) -> usize {
        self.revoke_bits(resource, bits::ALL)
    }

    /// Revokes these bits of all locks on an inode. Returns the number of locks.
    pub fn revoke_bits(&self, resource: Resource, wanted: u64) -> usize {
        let calls: Vec<_> = {
            let state = self.state.lock();
            let held = state.locks.held.iter().filter(|(_, held)| held.resource == resource);
            let export = |held: &Held| match held.ost {
                None => state.locks.mds.clone(),
                Some(ost) => state.locks.osts.get(&ost).cloned(),
            };
            held.map(|(id, held)| (*id, held.cookie, held.ost, export(held).expect("a client is connected"))).collect()
        };
        for (id, cookie, ost, export) in &calls {
            let wanted = (Mode::Ex, Policy::bits(wanted));
            let callback = Callback::Blocking { id: *id, cookie: *cookie, resource, wanted };
            let sent = if ost.is_some() { export.callback::<Ost>(callback) } else { export.callback::<Mds>(callback) };
            assert!(sent, "there is a connection");
        }
        calls.len()
    }

    /// Adds a durable record to the changelog, and calls the client back.
    pub fn record(&self, record: Record) {
        let export = {
            let mut state = self.state.lock();
            state.changelog.push(record);
            state.locks.mds.clone().expect("a client is connected")
        };
        assert!(export.callback::<Mds>(Callback::Changelog), "there is a connection");
    }

    /// Grants the waiting locks on a resource.
    pub fn complete(&self, resource: Resource, policy: Policy) {
        let (export, calls) = {
            let state = self.state.lock();
            let held = state.locks.held.iter().filter(|(_, held)| held.resource == resource);
            let calls: Vec<_> = held.map(|(id, held)| (*id, held.cookie)).collect();
            (state.locks.mds.clone().expect("a client is connected"), calls)
        };
        for (id, cookie) in calls {
            export.callback::<Mds>(Callback::Completion { id, cookie, resource, mode: Mode::Ex, policy });
        }
    }
}
