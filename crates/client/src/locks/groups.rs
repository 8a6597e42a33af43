//! Group locks over a restart of their OST.
//!
//! Programs hold group locks, so they do not end with the OST's process as other locks do. The
//! client requests them again in the OST's recovery, with the same handles.
//!
//! Invariants:
//! * until the OST has granted a lock again, the lock counts as held: the OST serves no other
//!   client, and the client sends no data to the OST;
//! * if the OST does not grant it again, no handle finds it any more ([`LockRef::is_lost`]).

use std::sync::Arc;

use sheen_ldlm::client::Held;
use sheen_rt::Rt;
use sheen_wire::ldlm::{Cookie, LockId, Resource};

use super::table::{LockRef, LockTable};

impl LockRef {
    /// Whether the lock was lost: the target has evicted this client, or was restarted and did not
    /// grant the lock again.
    pub fn is_lost(&self) -> bool {
        self.table.state.lock().locks.held(self.cookie).is_none()
    }
}

impl LockTable {
    /// Returns the runtime.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Drops all locks, as [`LockTable::forget`], except the group locks.
    pub fn forget_all_but_groups(self: &Arc<Self>) {
        self.forget_with(|state| {
            let dropped = state.locks.restarted();
            let locks = &state.locks;
            state.flushes.retain(|flush| locks.held(flush.cookie).is_some());
            dropped
        });
    }

    /// Returns the group locks that the restarted target has not granted again.
    pub fn ungranted(&self) -> Vec<(Resource, Held)> {
        self.state.lock().locks.ungranted()
    }

    /// Processes the grant of a group lock by the restarted target.
    pub fn regranted(self: &Arc<Self>, cookie: Cookie, id: LockId) {
        self.done(self.state.lock(), |locks, actions| locks.regranted(cookie, id, actions));
    }

    /// Drops the group locks that the restarted target does not grant again.
    pub fn lose(&self, cookies: impl IntoIterator<Item = Cookie>) {
        let mut state = self.state.lock();
        cookies.into_iter().for_each(|cookie| state.locks.lost(cookie));
    }
}
