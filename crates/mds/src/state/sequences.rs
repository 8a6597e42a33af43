//! The sequences from which clients of users may name files.
//!
//! Other clients are trusted with the FIDs that they choose. A user could otherwise name a file
//! with a FID that another client is about to use, or has used.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Maximum sequences of one user. Beyond that the earliest is dropped: its client gets another one
/// when it mounts again.
const OF_USER_MAX: usize = 4096;

/// Sequences by uid.
#[derive(Default)]
pub(crate) struct UserSequences(FxHashMap<u32, BTreeSet<u64>>);

impl UserSequences {
    /// Records that a user may use a sequence.
    pub fn insert(&mut self, uid: u32, seq: u64) {
        let of_user = self.0.entry(uid).or_default();
        of_user.insert(seq);
        if of_user.len() > OF_USER_MAX {
            of_user.pop_first();
        }
    }

    /// Whether a user may use a sequence.
    pub fn has(&self, uid: u32, seq: u64) -> bool {
        self.0.get(&uid).is_some_and(|of_user| of_user.contains(&seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_belongs_to_its_user_and_their_number_is_bounded() {
        let mut sequences = UserSequences::default();
        sequences.insert(1, 7);
        assert!(sequences.has(1, 7) && !sequences.has(2, 7) && !sequences.has(1, 8));
        (100..100 + OF_USER_MAX as u64).for_each(|seq| sequences.insert(1, seq));
        assert!(!sequences.has(1, 7) && sequences.has(1, 100));
    }
}
