//! The list of damage that reads and scrubs have found since the OST started.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use sheen_wire::Fid;

use super::at_rest::Damage;

/// Most blocks that are listed. Beyond it, damage is only logged.
const LISTED_MAX: usize = 4096;

/// The list.
#[derive(Debug, Default)]
pub struct Damaged(Mutex<BTreeMap<Fid, BTreeSet<Damage>>>);

impl Damaged {
    /// Adds a block. Returns whether it was not in the list.
    pub fn add(&self, object: Fid, damage: Damage) -> bool {
        let mut all = self.0.lock();
        let has_room = all.values().map(BTreeSet::len).sum::<usize>() < LISTED_MAX;
        !has_room || all.entry(object).or_default().insert(damage)
    }

    /// Returns all blocks.
    pub fn all(&self) -> Vec<(Fid, Damage)> {
        let all = self.0.lock();
        all.iter().flat_map(|(object, blocks)| blocks.iter().map(|block| (*object, *block))).collect()
    }

    /// Removes blocks.
    pub fn remove(&self, repaired: &[(Fid, Damage)]) {
        let mut all = self.0.lock();
        for (object, damage) in repaired {
            if let Some(blocks) = all.get_mut(object) {
                blocks.remove(damage);
                if blocks.is_empty() {
                    all.remove(object);
                }
            }
        }
    }
}
