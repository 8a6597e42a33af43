//! The list of damage that reads and scrubs have found since the OST started, and of repairs.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use sheen_wire::{
    Fid,
    ost::{Damaged, DamagedBlock},
};

/// Most blocks that are listed. Beyond it, damage is only logged.
const LISTED_MAX: usize = 4096;
/// Repaired blocks that are listed: the last ones.
const REPAIRED_MAX: usize = 100;

/// The list.
#[derive(Debug, Default)]
pub struct DamageList(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// For each damaged block whether the MDT was asked to repair it.
    blocks: BTreeMap<(Fid, DamagedBlock), bool>,
    repaired_count: u64,
    repaired: VecDeque<Damaged>,
}

impl DamageList {
    /// Adds a block of an object. Returns whether it was not in the list.
    pub fn add(&self, object: Fid, block: DamagedBlock) -> bool {
        let blocks = &mut self.0.lock().blocks;
        let is_new = !blocks.contains_key(&(object, block));
        if is_new && blocks.len() < LISTED_MAX {
            blocks.insert((object, block), false);
        }
        is_new
    }

    /// Returns all blocks by object.
    pub fn all(&self) -> Vec<(Fid, DamagedBlock)> {
        self.0.lock().blocks.keys().copied().collect()
    }

    /// Removes blocks that are not damaged any more.
    pub fn remove(&self, blocks: &[(Fid, DamagedBlock)]) {
        let mut state = self.0.lock();
        blocks.iter().for_each(|block| _ = state.blocks.remove(block));
    }

    /// Takes at most `max` blocks that the MDT is to be asked to repair.
    pub fn take_unasked(&self, max: usize) -> Vec<(Fid, DamagedBlock)> {
        let mut state = self.0.lock();
        let unasked = state.blocks.iter_mut().filter(|(_, is_asked)| !**is_asked).take(max);
        unasked
            .map(|(block, is_asked)| {
                *is_asked = true;
                *block
            })
            .collect()
    }

    /// Lets the MDT be asked for all blocks again. Returns whether there are any.
    pub fn ask_again(&self) -> bool {
        let mut state = self.0.lock();
        state.blocks.values_mut().for_each(|is_asked| *is_asked = false);
        !state.blocks.is_empty()
    }

    /// Records a repair.
    pub fn repaired(&self, damaged: Damaged) {
        let mut state = self.0.lock();
        state.blocks.remove(&(damaged.object, damaged.block));
        state.repaired_count += 1;
        if state.repaired.len() == REPAIRED_MAX {
            state.repaired.pop_front();
        }
        state.repaired.push_back(damaged);
    }

    /// Returns the number of repaired blocks, and the last ones.
    pub fn repairs(&self) -> (u64, Vec<Damaged>) {
        let state = self.0.lock();
        (state.repaired_count, state.repaired.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: DamagedBlock = DamagedBlock { offset: 0, len: 10, sum: 1 };

    fn object(oid: u32) -> Fid {
        Fid::new(0x2_8000_0401, oid)
    }

    #[test]
    fn mdt_is_asked_for_each_damaged_block_once_until_asked_again() {
        let list = DamageList::default();
        assert!(!list.ask_again());
        assert!(list.add(object(1), BLOCK) && list.add(object(2), BLOCK) && !list.add(object(1), BLOCK));
        assert_eq!(list.take_unasked(1), [(object(1), BLOCK)]);
        assert_eq!(list.take_unasked(9), [(object(2), BLOCK)]);
        assert!(!list.add(object(2), BLOCK) && list.take_unasked(9).is_empty());
        list.remove(&[(object(1), BLOCK)]);
        assert!(list.ask_again());
        assert_eq!(list.take_unasked(9), [(object(2), BLOCK)]);
        let damaged = Damaged { object: object(2), file: Fid::ZERO, block: BLOCK };
        list.repaired(damaged);
        assert_eq!((list.all(), list.repairs()), (vec![], (1, vec![damaged])));
    }

    #[test]
    fn damage_list_is_bounded() {
        let list = DamageList::default();
        for oid in 1..=LISTED_MAX as u32 + 2 {
            assert!(list.add(object(oid), BLOCK), "each is logged");
            list.repaired(Damaged { object: Fid::ZERO, file: Fid::ZERO, block: BLOCK });
        }
        assert_eq!((list.all().len(), list.repairs().1.len()), (LISTED_MAX, REPAIRED_MAX));
        assert!(!list.add(object(1), BLOCK));
    }
}
