//! The sequences from which clients with a host's or user's key may name files.
//!
//! Servers are trusted with the FIDs that they choose. Others could name a file with a FID that
//! another client is about to use, or has used.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// Maximum sequences of one holder. Beyond that the one that was not used for the longest time is
/// dropped.
const OF_HOLDER_MAX: usize = 4096;

/// The client, or clients, that may use a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// All clients that act as this user.
    User(u32),
    /// The client of this export.
    Client(u64),
}

/// Sequences by their holders.
#[derive(Default)]
pub(crate) struct Sequences(FxHashMap<Holder, OfHolder>);

#[derive(Default)]
struct OfHolder {
    /// Number of uses until now.
    uses: u64,
    /// Number of uses at the last use of each.
    last: BTreeMap<u64, u64>,
}

impl Sequences {
    /// Records that a holder may use a sequence.
    pub fn insert(&mut self, holder: Holder, seq: u64) {
        let of_holder = self.0.entry(holder).or_default();
        of_holder.uses += 1;
        of_holder.last.insert(seq, of_holder.uses);
        if of_holder.last.len() > OF_HOLDER_MAX {
            let oldest = of_holder.last.iter().min_by_key(|(_, used)| **used).map(|(seq, _)| *seq);
            oldest.and_then(|seq| of_holder.last.remove(&seq));
        }
    }

    /// Whether a holder may use a sequence, which is about to be used.
    pub fn has(&mut self, holder: Holder, seq: u64) -> bool {
        let Some(of_holder) = self.0.get_mut(&holder) else { return false };
        let Some(used) = of_holder.last.get_mut(&seq) else { return false };
        of_holder.uses += 1;
        *used = of_holder.uses;
        true
    }

    /// Drops the sequences of a client that has ended.
    pub fn disconnected(&mut self, export: u64) {
        self.0.remove(&Holder::Client(export));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_belongs_to_its_user_and_the_number_of_unused_ones_is_bounded() {
        let (mut sequences, user) = (Sequences::default(), Holder::User(1));
        (7..9).for_each(|seq| sequences.insert(user, seq));
        assert!(sequences.has(user, 7) && !sequences.has(Holder::Client(1), 7) && !sequences.has(user, 6));
        (100..99 + OF_HOLDER_MAX as u64).for_each(|seq| sequences.insert(user, seq));
        assert!(sequences.has(user, 7) && !sequences.has(user, 8) && sequences.has(user, 100), "7 was used");
    }
}
