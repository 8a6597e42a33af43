//! The comparison of an object on an OST with the file that has this object.
//!
//! * The owner, to whom the OST charges the space, is that of the file. An object without an owner
//!   is no problem: the OST asks for it. Nor is one of a file in the owner log: its OSTs get the
//!   owner later.
//! * The object has no bytes that the layout maps to no byte of the file. The MDT stores no other
//!   sizes of files.

use sheen_layout::Layout;
use sheen_wire::{self as wire, Fid, ost::StoredObject, quota::Owner};

use super::{found::ObjectAt, problem::Problem};
use crate::{Namespace, Store};

/// The state that an OST should have stored of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The file that has the object.
    pub file: Fid,
    /// Its owner. `None`: the OST may have another one.
    pub(super) owner: Option<Owner>,
    /// Maximum size of the object in bytes.
    pub(super) end: u64,
}

impl Expected {
    /// Returns the differences to what an OST has stored of the object.
    pub fn problems(&self, ost: u32, object: Fid, stored: &StoredObject) -> impl Iterator<Item = Problem> + use<> {
        let &Expected { file, end, .. } = self;
        let owners = stored.owner.zip(self.owner).filter(|(stored, owner)| stored != owner);
        let owner = owners.map(|(stored, owner)| Problem::InconsistentOwner { ost, object, file, stored, owner });
        let bytes = stored.size;
        let size = (bytes > end).then_some(Problem::BytesBeyondLayout { ost, object, file, bytes, end });
        owner.into_iter().chain(size)
    }
}

impl<S: Store> Namespace<S> {
    /// Returns what should be stored of an object if it is one of this file at present. Changes
    /// that are not durable count.
    ///
    /// # Errors
    /// EIO: the store cannot be read.
    pub fn expected(&mut self, file: Fid, ost: u32, object: Fid) -> wire::Result<Option<Expected>> {
        let Some((owner, Some(layout))) = self.owner_and_layout(file)? else { return Ok(None) };
        let Some(end) = end_in(&layout, (ost, object)) else { return Ok(None) };
        let is_sent = !self.is_owner_logged(file)?;
        Ok(Some(Expected { file, owner: is_sent.then_some(owner), end }))
    }
}

/// Returns the maximum size of an object by a layout. `None`: the layout does not have it.
fn end_in(layout: &Layout, at: ObjectAt) -> Option<u64> {
    if !layout.all_objects().any(|stripe| (stripe.ost, stripe.object) == at) {
        return None;
    }
    let end = layout.object_ends().find(|(stripe, _)| (stripe.ost, stripe.object) == at);
    Some(end.map_or(u64::MAX, |(_, end)| end))
}
