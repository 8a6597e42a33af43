//! The changes that clients replay in a recovery, and the objects for which they come too late.

use sheen_wire::{Bulk, Fid, ost::Change};

/// A change that a client replays.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub change: Change,
    /// The bytes of a write.
    pub bulk: Bulk,
    /// Id of the client's export.
    pub export: u64,
}

/// The ranges of objects that were destroyed during a recovery: sequence, first and last id. The
/// store knows single ones.
#[derive(Debug, Default)]
pub(crate) struct Destroyed(pub Vec<(u64, u32, u32)>);

impl Destroyed {
    /// Whether the object is in one of the ranges.
    pub fn has(&self, object: Fid) -> bool {
        self.0.iter().any(|(seq, first, last)| object.seq == *seq && (*first..=*last).contains(&object.oid))
    }
}
