//! The ends of files that this client appends to, so that an append need not ask for the size.
//!
//! An end is known under PW locks on all objects of the file, which keep other clients from
//! changing it. So it is valid as long as exactly these locks are held, and this client has changed
//! no data of the file.
//!
//! Invariants:
//! * every change of data by this client is announced ([`KnownEnds::changing`]) before its first
//!   request, until it has ended;
//! * an end is stored by an append that was the only change since its stamp, and forgotten with the
//!   next change;
//! * a mirrored file has no known end: the first object, by which its changes are counted, need not
//!   be in the mirror that is written.
//!
//! Files share a slot by chance. A change of one then makes the end of the other unknown.

use parking_lot::Mutex;
use sheen_layout::Layout;
use sheen_wire::{Fid, ldlm::Cookie};

/// Number of slots: a power of two.
const SLOTS: usize = 256;

/// The known ends of a mount.
pub struct KnownEnds {
    slots: Vec<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    /// Number of changes in progress.
    changing: u32,
    /// Number of changes that have ended.
    changes: u64,
    end: Option<End>,
}

struct End {
    object: Fid,
    /// The locks, by stripe.
    locks: Vec<Cookie>,
    bytes: u64,
    /// [`Slot::changes`] since the end is known.
    changes: u64,
}

/// A moment between the changes of a file by this client.
#[derive(Clone, Copy, Debug)]
pub struct Stamp(u64);

/// A change of a file's data, in progress until it is dropped.
pub struct Changing<'a>(&'a Mutex<Slot>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.lock();
        slot.changing -= 1;
        slot.changes += 1;
    }
}

impl KnownEnds {
    /// Creates an empty table.
    pub fn new() -> KnownEnds {
        KnownEnds { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }

    /// Announces a change of data of a file with this layout.
    pub fn changing(&self, layout: &Layout) -> Changing<'_> {
        let slot = self.slot(first_object(layout));
        slot.lock().changing += 1;
        Changing(slot)
    }

    /// Returns the present moment; `None` during a change. Call it before the size is requested.
    pub fn stamp(&self, layout: &Layout) -> Option<Stamp> {
        let slot = self.slot(first_object(layout)).lock();
        (slot.changing == 0).then_some(Stamp(slot.changes))
    }

    /// Returns the end of the file in bytes, if it is known under exactly these locks.
    pub fn get(&self, layout: &Layout, locks: &[Cookie]) -> Option<u64> {
        let object = first_object(layout);
        let slot = self.slot(object).lock();
        let end = slot.end.as_ref()?;
        let is_same = end.object == object && end.locks == locks && !layout.is_mirrored();
        (is_same && slot.changing == 0 && end.changes == slot.changes).then_some(end.bytes)
    }

    /// Stores the end after an append, which was one change since `stamp`.
    pub fn learn(&self, layout: &Layout, stamp: Stamp, locks: Vec<Cookie>, bytes: u64) {
        let object = first_object(layout);
        let mut slot = self.slot(object).lock();
        if slot.changing == 0 && slot.changes == stamp.0 + 1 && !layout.is_mirrored() {
            slot.end = Some(End { object, locks, bytes, changes: slot.changes });
        }
    }

    fn slot(&self, object: Fid) -> &Mutex<Slot> {
        let mixed = (object.seq ^ u64::from(object.oid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.slots[(mixed >> 32) as usize % SLOTS]
    }
}

/// Returns the object that stands for the data of a file. The data keeps its objects when layouts
/// are exchanged between files.
fn first_object(layout: &Layout) -> Fid {
    layout.stripes().first().map_or(layout.fid(), |stripe| stripe.object)
}
