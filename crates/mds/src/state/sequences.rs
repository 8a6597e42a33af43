//! The sequences from which clients of users may name files.
//!
//! Other clients are trusted with the FIDs that they choose. A user could otherwise name a file
//! with a FID that another client is about to use, or has used.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// Maximum sequences of one user. Beyond that the one that was not used for the longest time is
/// dropped.
const OF_USER_MAX: usize = 4096;

/// Sequences by uid.
#[derive(Default)]
pub(crate) struct UserSequences(FxHashMap<u32, OfUser>);

#[derive(Default)]
struct OfUser {
    /// Number of uses until now.
    uses: u64,
    /// Number of uses at the last use of each.
    last: BTreeMap<u64, u64>,
}

impl UserSequences {
    /// Records that a user may use a sequence.
    pub fn insert(&mut self, uid: u32, seq: u64) {
        let of_user = self.0.entry(uid).or_default();
        of_user.uses += 1;
        of_user.last.insert(seq, of_user.uses);
        if of_user.last.len() > OF_USER_MAX {
            let oldest = of_user.last.iter().min_by_key(|(_, used)| **used).map(|(seq, _)| *seq);
            oldest.and_then(|seq| of_user.last.remove(&seq));
        }
    }

    /// Whether a user may use a sequence, which is about to be used.
    pub fn has(&mut self, uid: u32, seq: u64) -> bool {
        let Some(of_user) = self.0.get_mut(&uid) else { return false };
        let Some(used) = of_user.last.get_mut(&seq) else { return false };
        of_user.uses += 1;
        *used = of_user.uses;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_belongs_to_its_user_and_the_number_of_unused_ones_is_bounded() {
        let mut sequences = UserSequences::default();
        (7..9).for_each(|seq| sequences.insert(1, seq));
        assert!(sequences.has(1, 7) && !sequences.has(2, 7) && !sequences.has(1, 6));
        (100..99 + OF_USER_MAX as u64).for_each(|seq| sequences.insert(1, seq));
        assert!(sequences.has(1, 7) && !sequences.has(1, 8) && sequences.has(1, 100), "7 was used");
    }
}
