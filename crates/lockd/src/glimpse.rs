//! Asking writers how large objects are, and waiting for what they answer. Whom to ask, and what an
//! answer is worth, the engine decides.

use std::sync::Arc;

use sheen_ldlm::Ticket;
use sheen_rpc::Export;
use sheen_wire::{
    Time,
    ldlm::{LockId, Resource},
    ost::ObjectAttr,
};
use tokio::sync::oneshot;

use crate::core::{Core, Errand, State};

/// What writers know of an object beyond what they have written; zero where nobody knows more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Glimpse {
    /// Bytes: the end of the data that reaches furthest.
    pub size: u64,
    /// Space that the data may take, of all writers, in units of 512 bytes.
    pub blocks: u64,
    /// When it was written last.
    pub mtime: Option<Time>,
}

impl Glimpse {
    fn add(&mut self, answer: &ObjectAttr) {
        self.size = self.size.max(answer.size);
        self.blocks = self.blocks.saturating_add(answer.blocks);
        self.mtime = self.mtime.max(answer.mtime);
    }
}

/// An object about which clients were asked.
pub(crate) struct Asked {
    /// Answers to come.
    left: usize,
    known: Glimpse,
    answer: oneshot::Sender<Glimpse>,
}

/// Who waits for answers; ends that when it is dropped.
struct Waiting<'a> {
    core: &'a Arc<Core>,
    /// By place among the objects.
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
                    state.glimpses.insert(ticket, Asked { left, known: Glimpse::default(), answer });
                    waiting.objects.push((n, *resource, ticket, receiver));
                }
            }
        });
        for (n, _, _, answer) in &mut waiting.objects {
            // There is no answer only where the lock server itself goes.
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

impl State {
    /// One of those that were asked has answered, or has nothing to tell.
    pub fn glimpsed(&mut self, ticket: Ticket, answer: Option<ObjectAttr>) -> Option<Errand> {
        let asked = self.glimpses.get_mut(&ticket)?;
        if let Some(answer) = answer {
            asked.known.add(&answer);
        }
        asked.left -= 1;
        if asked.left > 0 {
            return None;
        }
        let Asked { known, answer, .. } = self.glimpses.remove(&ticket)?;
        Some(Errand::Known(answer, known))
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
