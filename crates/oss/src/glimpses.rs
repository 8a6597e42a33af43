//! Glimpses: sizes, space and times of objects that others may have changed and not written yet.
//! They are asked, and keep their locks.
//!
//! Invariants:
//! * what is told holds everything that anybody had done when the request came, also in caches;
//! * writers are asked first, and the object is looked at after they have answered: what one of
//!   them writes in between is in his answer or in the object, never in neither. (Its space may be
//!   counted twice, for the moment.)

use sheen_lockd::Glimpse;
use sheen_rpc::Export;
use sheen_wire::{
    Fid, Result,
    ldlm::{Enqueue, Enqueued, Resource},
    ost::ObjectAttr,
};

use crate::{Ost, service::BLOCKING_OBJECTS};

/// The size up to which writers need not be asked: none. One who writes inside of the object
/// changes its time all the same. What it costs is a callback for each client that may be writing,
/// however many locks it has.
const KNOWN: u64 = 0;

impl Ost {
    /// The attributes of `objects`, in their order.
    ///
    /// # Errors
    /// What the local file system says.
    pub(crate) async fn attrs(&self, export: &Export, objects: &[Fid]) -> Result<Vec<ObjectAttr>> {
        let wants: Vec<(Resource, u64)> = objects.iter().map(|object| (Resource::extent(*object), KNOWN)).collect();
        let known = self.locks.glimpse(export, &wants).await?;
        let mut attrs = self.perhaps_blocking(objects.len() >= BLOCKING_OBJECTS, || self.store.attrs(objects))?;
        attrs.iter_mut().zip(&known).for_each(|(attr, known)| add(attr, known));
        Ok(attrs)
    }

    /// The attributes that go with answers to requests for locks: where a lock was refused because
    /// somebody is in the way, with what he knows. Others need not be asked: what a lock on all of
    /// an object vouches for they have written.
    ///
    /// # Errors
    /// As [`Ost::attrs`].
    pub(crate) async fn attrs_with(
        &self,
        export: &Export,
        wants: &[Enqueue],
        answers: &[Enqueued],
    ) -> Result<Vec<ObjectAttr>> {
        let refused = |(n, answer): (usize, &Enqueued)| matches!(answer, Enqueued::WouldBlock { .. }).then_some(n);
        let refused: Vec<usize> = answers.iter().enumerate().filter_map(refused).collect();
        let asked: Vec<(Resource, u64)> = refused.iter().map(|n| (wants[*n].resource, KNOWN)).collect();
        let known = if asked.is_empty() { Vec::new() } else { self.locks.glimpse(export, &asked).await? };
        let attr = |(want, answer): (&Enqueue, &Enqueued)| match answer {
            Enqueued::Refused(_) => Ok(ObjectAttr::default()), // perhaps not even an object
            _ => self.store.attr(want.resource.fid),
        };
        let mut attrs = self.perhaps_blocking(wants.len() >= BLOCKING_OBJECTS, || {
            wants.iter().zip(answers).map(attr).collect::<Result<Vec<ObjectAttr>>>()
        })?;
        refused.iter().zip(&known).for_each(|(n, known)| add(&mut attrs[*n], known));
        Ok(attrs)
    }
}

/// Adds what others know to what the object shows.
fn add(attr: &mut ObjectAttr, known: &Glimpse) {
    attr.size = attr.size.max(known.size);
    attr.blocks = attr.blocks.saturating_add(known.blocks);
    attr.mtime = attr.mtime.max(known.mtime);
}
