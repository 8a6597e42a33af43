//! A second count of an OST's objects by owner, with which the sums of a [`Quota`](crate::Quota)
//! are compared. Clients change objects meanwhile.
//!
//! Invariant: an object is counted from the moment on when the count reaches it, or when it becomes
//! a part of the sums. Its later changes count in both. So the sums differ at the end only if they
//! were wrong for an object when the count reached it.

use std::collections::BTreeMap;

use sheen_wire::{
    Fid,
    ost::QuotaUse,
    quota::{Id, Owner},
};

use crate::counted::CountedObjects;

/// The count.
#[derive(Debug, Default)]
pub struct Recount {
    counted: CountedObjects,
    pub(crate) uses: BTreeMap<Id, QuotaUse>,
}

/// A wrong sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongSum {
    /// Whose.
    pub id: Id,
    /// The sum.
    pub counted: QuotaUse,
    /// The space of the objects, and their number.
    pub found: QuotaUse,
}

impl Recount {
    /// Counts an object with its bytes, unless it is counted. `owner`: as far as known.
    pub fn add(&mut self, object: Fid, owner: Option<Owner>, bytes: u64) {
        if self.counted.insert(object) {
            self.change(owner, |used| {
                used.bytes = used.bytes.saturating_add(bytes);
                used.objects = used.objects.saturating_add(1);
            });
        }
    }

    /// Returns the counted objects.
    pub fn counted(&self) -> &CountedObjects {
        &self.counted
    }

    /// Removes an object.
    pub fn remove(&mut self, object: Fid, owner: Option<Owner>, bytes: u64) {
        if self.counted.remove(object) {
            self.change(owner, |used| {
                used.bytes = used.bytes.saturating_sub(bytes);
                used.objects = used.objects.saturating_sub(1);
            });
        }
    }

    /// Changes the bytes of an object, if it is counted.
    pub fn resize(&mut self, object: Fid, owner: Option<Owner>, old: u64, new: u64) {
        if self.counted.has(object) {
            self.change(owner, |used| used.bytes = used.bytes.saturating_add(new).saturating_sub(old));
        }
    }

    /// Changes the owner of an object, if it is counted.
    pub fn give(&mut self, object: Fid, before: Option<Owner>, owner: Owner, bytes: u64) {
        if self.counted.has(object) {
            self.remove(object, before, bytes);
            self.add(object, Some(owner), bytes);
        }
    }

    fn change(&mut self, owner: Option<Owner>, change: impl Fn(&mut QuotaUse)) {
        for id in owner.into_iter().flat_map(Owner::ids) {
            change(self.uses.entry(id).or_default());
        }
    }
}
