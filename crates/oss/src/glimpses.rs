//! Glimpses: sizes, space and times of objects that other clients may have changed without
//! flushing. The OST asks these writers; they keep their locks.
//!
//! Invariants:
//! * the attributes include every change that any client had made when the request arrived, also
//!   changes still in caches;
//! * the OST asks the writers first and reads the object's attributes after their answers. So data
//!   that a writer flushes in between is in its answer or in the object, never missing from both.
//!   (Its space may be counted twice for a moment.)

use sheen_lockd::Glimpse;
use sheen_rpc::Export;
use sheen_wire::{
    Fid, Result,
    ldlm::{Enqueue, Enqueued, Resource},
    ost::ObjectAttr,
};

use crate::{Ost, ost::BLOCKING_OBJECTS};

/// Size below which writers need not be asked: none, because a write inside the object also changes
/// its time. The cost is one callback for each client that may be writing, however many locks the
/// client holds.
const KNOWN: u64 = 0;

impl Ost {
    /// Returns the attributes of `objects`, in their order.
    ///
    /// # Errors
    /// Errors of the local file system. ESHUTDOWN: the OST stops.
    pub(crate) async fn attrs(&self, export: &Export, objects: &[Fid]) -> Result<Vec<ObjectAttr>> {
        let wants: Vec<(Resource, u64)> = objects.iter().map(|object| (Resource::extent(*object), KNOWN)).collect();
        let known = self.locks.glimpse(export, &wants).await?;
        let mut attrs = self.perhaps_blocking(objects.len() >= BLOCKING_OBJECTS, || self.store.attrs(objects))?;
        attrs.iter_mut().zip(&known).for_each(|(attr, known)| add(attr, known));
        Ok(attrs)
    }

    /// Returns the attributes that go with the answers to enqueued locks. Where a lock was refused
    /// because of a conflict, they include what the writers know. Granted locks need no glimpse:
    /// before a lock on a whole object is granted, the writers have flushed. Locks for writes need
    /// none either: they are requested ahead, and nobody looks at their sizes.
    ///
    /// # Errors
    /// As [`Ost::attrs`].
    pub(crate) async fn attrs_with(
        &self,
        export: &Export,
        wants: &[Enqueue],
        answers: &[Enqueued],
    ) -> Result<Vec<ObjectAttr>> {
        let refused = |(n, answer): (usize, &Enqueued)| {
            let is_refused = matches!(answer, Enqueued::WouldBlock { .. });
            (is_refused && !wants[n].mode.writes()).then_some(n)
        };
        let refused: Vec<usize> = answers.iter().enumerate().filter_map(refused).collect();
        let asked: Vec<(Resource, u64)> = refused.iter().map(|n| (wants[*n].resource, KNOWN)).collect();
        let known = if asked.is_empty() { Vec::new() } else { self.locks.glimpse(export, &asked).await? };
        let attr = |(want, answer): (&Enqueue, &Enqueued)| match answer {
            Enqueued::Refused(_) => Ok(ObjectAttr::default()), // may name no valid object
            _ => self.store.attr(want.resource.fid),
        };
        let mut attrs = self.perhaps_blocking(wants.len() >= BLOCKING_OBJECTS, || {
            wants.iter().zip(answers).map(attr).collect::<Result<Vec<ObjectAttr>>>()
        })?;
        refused.iter().zip(&known).for_each(|(n, known)| add(&mut attrs[*n], known));
        Ok(attrs)
    }
}

/// Merges the answers of writers into the object's attributes.
fn add(attr: &mut ObjectAttr, known: &Glimpse) {
    attr.size = attr.size.max(known.size);
    attr.blocks = attr.blocks.saturating_add(known.blocks);
    attr.mtime = attr.mtime.max(known.mtime);
}
