//! Glimpses: asking writers for the sizes of objects, and waiting for their answers. The engine
//! decides which clients to ask and what an answer is worth.

use std::sync::Arc;

use sheen_ldlm::Ticket;
use sheen_rpc::Export;
use sheen_wire::{
    ldlm::{LockId, Resource},
    ost::ObjectAttr,
};
use tokio::sync::oneshot;

use crate::{
    core::Core,
    waiters::{Asked, Glimpse},
};

/// A caller that waits for answers; dropping it withdraws its tickets.
struct Waiting<'a> {
    core: &'a Arc<Core>,
    /// Objects with a missing answer; the first field is the index among all objects.
    objects: Vec<(usize, Resource, Ticket, oneshot::Receiver<Glimpse>)>,
}

impl Core {
    pub async fn glimpse(self: &Arc<Self>, asker: &Export, wants: &[(Resource, u64)]) -> Vec<Glimpse> {
        let mut known = vec![Glimpse::default(); wants.len()];
        let mut waiting = Waiting { core: self, objects: Vec::new() };
        self.act(|state, now| {
            for (n, (resource, size)) in wants.iter().enumerate() {
                let ticket = state.tickets;
                let left = state.ns.glimpse(now, *resource, asker.id(), *size, ticket, &mut state.actions);
                if left > 0 {
                    state.tickets += 1;
                    let (answer, receiver) = oneshot::channel();
                    state.glimpses.insert(ticket, Asked::new(left, answer));
                    waiting.objects.push((n, *resource, ticket, receiver));
                }
            }
        });
        for (n, _, _, answer) in &mut waiting.objects {
            // The sender is dropped without an answer only when the lock server itself is dropped.
            known[*n] = answer.await.unwrap_or_default();
        }
        known
    }

    pub fn glimpse_answered(self: &Arc<Self>, export: &Export, answers: &[(LockId, Option<ObjectAttr>)]) {
        self.act(|state, now| {
            for (id, answer) in answers {
                state.ns.glimpse_answered(now, export.id(), *id, *answer, &mut state.actions);
            }
        });
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.objects.retain(|(.., answer)| !answer.is_terminated());
        if self.objects.is_empty() {
            return;
        }
        self.core.act(|state, _| {
            for (_, resource, ticket, _) in &self.objects {
                if state.glimpses.remove(ticket).is_some() {
                    state.ns.glimpse_withdrawn(*resource, *ticket);
                }
            }
        });
    }
}
