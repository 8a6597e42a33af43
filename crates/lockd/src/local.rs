//! Locks of the server itself.
//!
//! A client may hold a lock on all that the server is about to change for it. Then no other
//! client's lock can conflict, and the server would not need one. It takes one all the same,
//! because the client may cancel its lock during the change. The cost is low, as the search for
//! conflicts skips the client's own locks. Such a lock neither queues behind requests that wait for
//! the client's lock (they wait for this change, too), nor waits for the locks of the client's
//! group.

use std::{fmt, sync::Arc};

use sheen_ldlm::SERVER;
use sheen_rpc::Export;
use sheen_rt::Instant;
use sheen_wire::ldlm::{Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource};

use crate::{
    core::{Core, Errand, State},
    merge::merged,
    waiters::Pending,
};

/// Locks of the server itself, granted or waiting; dropping it releases them.
///
/// Blocking callbacks for conflicting locks are sent by the first [`Local::wait`], not before. So
/// [`crate::Lockd::local`] may be called while the caller holds a mutex that a client's handler
/// could need.
pub struct Local {
    core: Arc<Core>,
    /// The first lock. Most requests have only one, which needs no allocation.
    first: Option<Held>,
    more: Vec<Held>,
    /// `None`: all were granted at once.
    pending: Option<Arc<Pending>>,
}

/// One of the locks.
#[derive(Clone, Copy)]
struct Held {
    resource: Resource,
    id: LockId,
}

impl Local {
    /// Whether all locks are granted.
    pub fn is_granted(&self) -> bool {
        self.pending.as_ref().is_none_or(|p| p.is_granted())
    }

    /// Sends the blocking callbacks and waits until all locks are granted. The future may be
    /// dropped, and the method called again.
    pub async fn wait(&mut self) {
        if let Some(pending) = &self.pending {
            self.core.deliver();
            pending.wait().await;
        }
    }

    fn enqueue(
        &mut self,
        state: &mut State,
        now: Instant,
        except: Option<&Export>,
        (resource, mode, policy): (Resource, Mode, Policy),
    ) {
        let flags = Flags { no_expand: true, ..Flags::default() };
        let ask = Enqueue { flags, ..Enqueue::new(resource, mode, policy, Cookie::NONE) };
        let spare = except.map_or(SERVER, Export::id);
        let id = match state.ns.enqueue_sparing(now, spare, &ask, &mut state.actions) {
            Enqueued::Granted { id, .. } => id,
            Enqueued::Waiting { id } => {
                let pending = self.pending.get_or_insert_default();
                pending.one_waits();
                state.wait_local(id, pending);
                state.requesters.add(id, except, &state.ns);
                id
            }
            refused => {
                // The server's requests are valid, and its only limit is the number of handles.
                tracing::error!(?ask, ?refused, "the server's own lock was refused: continuing without it");
                return;
            }
        };
        state.changing.add(resource, id, mode, policy);
        let held = Held { resource, id };
        match self.first {
            None => self.first = Some(held),
            Some(_) => self.more.push(held),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let Some(first) = self.first else { return };
        let waits = self.pending.is_some();
        self.core.act(|state, now| {
            for Held { resource, id } in [first].iter().chain(&self.more) {
                let settled = state.changing.remove(*resource, *id);
                state.outbox.extend(settled.map(Errand::Settled));
                if waits {
                    state.forget_local(*id);
                }
                state.ns.cancel(now, SERVER, &[*id], &mut state.actions);
            }
        });
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = usize::from(self.first.is_some()) + self.more.len();
        write!(f, "Local({count} locks, granted: {})", self.is_granted())
    }
}

impl Core {
    pub fn local(self: &Arc<Self>, wants: &[(Resource, Mode, Policy)], except: Option<&Export>) -> Local {
        let mut local = Local { core: self.clone(), first: None, more: Vec::new(), pending: None };
        match wants {
            [] => {}
            [one] => {
                self.note(|state, now| local.enqueue(state, now, except, *one));
            }
            several => {
                let wants = merged(several);
                self.note(|state, now| wants.into_iter().for_each(|want| local.enqueue(state, now, except, want)));
            }
        }
        local
    }
}
