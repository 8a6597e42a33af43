//! The server's own locks.
//!
//! A client that holds a lock on all that the server is about to change for it needs none of the
//! server: nobody else can be in the way. The server takes one all the same. It pins what the
//! client's lock guards, should the client lose that lock while the server is at it; and it costs
//! little, as the search for conflicts passes over the client's own locks. But it neither queues
//! behind others that wait for that lock (they wait for this change, too), nor waits for those of
//! the client's group.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sheen_ldlm::SERVER;
use sheen_rpc::Export;
use sheen_rt::Instant;
use sheen_wire::ldlm::{Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource};
use tokio::sync::Notify;

use crate::{
    core::{Core, Errand, State},
    merge::merged,
};

/// Locks of the server itself, granted or waited for; dropping it gives them back.
///
/// Clients in the way are called back by the first [`Local::wait`], not before: so that it may be
/// made while the caller holds what a client's handler could lead to.
pub struct Local {
    core: Arc<Core>,
    /// Most have one; that needs no memory of its own.
    first: Option<Held>,
    more: Vec<Held>,
    /// `None`: all were granted at once.
    pending: Option<Arc<Pending>>,
}

/// One of them.
#[derive(Clone, Copy)]
struct Held {
    resource: Resource,
    id: LockId,
}

/// How many are waited for.
#[derive(Default)]
pub(crate) struct Pending {
    left: AtomicUsize,
    changed: Notify,
}

impl Pending {
    /// One of them is granted. Returns whether it was the last.
    pub fn one_granted(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub fn wake(&self) {
        self.changed.notify_one();
    }
}

impl Local {
    /// Whether nobody is in the way any longer.
    pub fn is_granted(&self) -> bool {
        self.pending.as_ref().is_none_or(|p| p.left.load(Ordering::Acquire) == 0)
    }

    /// Waits until nobody is. May be dropped and called again.
    pub async fn wait(&mut self) {
        if let Some(pending) = &self.pending {
            self.core.deliver();
            while pending.left.load(Ordering::Acquire) > 0 {
                pending.changed.notified().await;
            }
        }
    }

    fn enqueue(
        &mut self,
        state: &mut State,
        now: Instant,
        spare: u64,
        (resource, mode, policy): (Resource, Mode, Policy),
    ) {
        let flags = Flags { no_expand: true, ..Flags::default() };
        let ask = Enqueue { flags, ..Enqueue::new(resource, mode, policy, Cookie::NONE) };
        let id = match state.ns.enqueue_sparing(now, spare, &ask, &mut state.actions) {
            Enqueued::Granted { id, .. } => id,
            Enqueued::Waiting { id } => {
                let pending = self.pending.get_or_insert_default();
                pending.left.fetch_add(1, Ordering::AcqRel);
                state.wait_local(id, pending);
                id
            }
            refused => {
                // What the server asks for makes sense, and no limit holds for it but that of
                // handles.
                tracing::error!(?ask, ?refused, "going on without a lock");
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
        let spare = except.map_or(SERVER, Export::id);
        match wants {
            [] => {}
            [one] => {
                self.note(|state, now| local.enqueue(state, now, spare, *one));
            }
            several => {
                let wants = merged(several);
                self.note(|state, now| wants.into_iter().for_each(|want| local.enqueue(state, now, spare, want)));
            }
        }
        local
    }
}
