//! The list of damage that reads and scrubs have found since the OST started, and of repairs.
//!
//! A lost object is listed as [`DamagedBlock::WHOLE`]. An object that a scrub misses is only a
//! suspect: a power failure may have undone a part of its removal. The MDT knows whether a file has
//! it, and is asked once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parking_lot::Mutex;
use sheen_wire::{
    Fid,
    ost::{Damaged, DamagedBlock},
};

/// Most blocks that are listed, and most suspects that wait. Beyond it, damage is neither repaired
/// nor logged one by one.
const LISTED_MAX: usize = 4096;
/// Repaired blocks that are listed: the last ones.
const REPAIRED_MAX: usize = 100;
/// Most rounds between two requests to repair a block: about a day.
const ROUNDS_MAX: u32 = 256;

/// The list.
#[derive(Debug, Default)]
pub struct DamageList(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// For each damaged block when the MDT is asked to repair it.
    blocks: BTreeMap<(Fid, DamagedBlock), Due>,
    /// Objects without a file, for which the MDT was not asked.
    suspects: BTreeSet<Fid>,
    /// Whether a block was refused since there was space.
    is_full: bool,
    repaired_count: u64,
    repaired: VecDeque<Damaged>,
}

/// The next requests to repair a block. The time between two requests doubles: without another
/// mirror that has the bytes, each repair fails.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Rounds until the MDT is asked. 0: it is to be asked now.
    left: u32,
    /// Rounds between that request and the one after it.
    then: u32,
}

impl Due {
    const NOW: Due = Due { left: 0, then: 1 };

    /// Returns the state after the first request.
    fn after_the_first() -> Due {
        let mut due = Due::NOW;
        due.asked();
        due
    }

    /// Records a request.
    fn asked(&mut self) {
        *self = Due { left: self.then, then: (self.then * 2).min(ROUNDS_MAX) };
    }
}

/// Result of [`DamageList::add`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// The block was added.
    New,
    /// The block is in the list, or the list was already found full.
    Known,
    /// The list has just become too small. The block was not added.
    Full,
}

impl State {
    fn remove(&mut self, block: &(Fid, DamagedBlock)) {
        self.is_full &= self.blocks.remove(block).is_none();
    }
}

impl DamageList {
    /// Adds a block of an object.
    pub fn add(&self, object: Fid, block: DamagedBlock) -> Added {
        self.insert(object, block, Due::NOW)
    }

    /// Adds a lost object for which the MDT was just asked.
    pub fn add_asked(&self, object: Fid) -> Added {
        self.insert(object, DamagedBlock::WHOLE, Due::after_the_first())
    }

    /// Lets the MDT be asked whether a file has an object that has no file here. Returns whether
    /// this is new.
    pub fn suspect(&self, object: Fid) -> bool {
        let mut state = self.0.lock();
        let is_listed = state.blocks.contains_key(&(object, DamagedBlock::WHOLE));
        !is_listed && state.suspects.len() < LISTED_MAX && state.suspects.insert(object)
    }

    /// Whether as many suspects wait as the list can have, so that it takes no other.
    pub fn is_full_of_suspects(&self) -> bool {
        self.0.lock().suspects.len() >= LISTED_MAX
    }

    fn insert(&self, object: Fid, block: DamagedBlock, due: Due) -> Added {
        let mut state = self.0.lock();
        if state.blocks.contains_key(&(object, block)) {
            return Added::Known;
        }
        if state.blocks.len() < LISTED_MAX {
            state.blocks.insert((object, block), due);
            return Added::New;
        }
        if std::mem::replace(&mut state.is_full, true) { Added::Known } else { Added::Full }
    }

    /// Returns all blocks by object.
    pub fn all(&self) -> Vec<(Fid, DamagedBlock)> {
        self.0.lock().blocks.keys().copied().collect()
    }

    /// Removes blocks that are not damaged any more.
    pub fn remove(&self, blocks: &[(Fid, DamagedBlock)]) {
        let mut state = self.0.lock();
        blocks.iter().for_each(|block| state.remove(block));
    }

    /// Takes at most `max` blocks that the MDT is to be asked to repair, and suspects. Suspects
    /// leave the list.
    pub fn take_unasked(&self, max: usize) -> Vec<(Fid, DamagedBlock)> {
        let mut state = self.0.lock();
        let unasked = state.blocks.iter_mut().filter(|(_, due)| due.left == 0).take(max);
        let ask = |(block, due): (&(Fid, DamagedBlock), &mut Due)| {
            due.asked();
            *block
        };
        let mut asked: Vec<_> = unasked.map(ask).collect();
        while asked.len() < max
            && let Some(object) = state.suspects.pop_first()
        {
            asked.push((object, DamagedBlock::WHOLE));
        }
        asked
    }

    /// Lets the MDT be asked for all blocks now. Returns whether there are any.
    pub fn ask_again(&self) -> bool {
        let mut state = self.0.lock();
        state.blocks.values_mut().for_each(|due| *due = Due::NOW);
        !state.blocks.is_empty()
    }

    /// Begins a round. Returns whether the MDT is to be asked for any block.
    pub fn begin_round(&self) -> bool {
        let mut state = self.0.lock();
        state.blocks.values_mut().for_each(|due| due.left = due.left.saturating_sub(1));
        state.blocks.values().any(|due| due.left == 0)
    }

    /// Records a repair.
    pub fn repaired(&self, damaged: Damaged) {
        let mut state = self.0.lock();
        state.remove(&(damaged.object, damaged.block));
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
        let added = [1, 2, 1].map(|oid| list.add(object(oid), BLOCK));
        assert_eq!(added, [Added::New, Added::New, Added::Known]);
        assert_eq!(list.take_unasked(1), [(object(1), BLOCK)]);
        assert_eq!(list.take_unasked(9), [(object(2), BLOCK)]);
        assert!(list.add(object(2), BLOCK) == Added::Known && list.take_unasked(9).is_empty());
        list.remove(&[(object(1), BLOCK)]);
        assert!(list.ask_again());
        assert_eq!(list.take_unasked(9), [(object(2), BLOCK)]);
        let damaged = Damaged { object: object(2), file: Fid::ZERO, block: BLOCK };
        list.repaired(damaged);
        assert_eq!((list.all(), list.repairs()), (vec![], (1, vec![damaged])));
    }

    #[test]
    fn mdt_is_asked_once_for_a_suspect_until_it_is_confirmed() {
        let list = DamageList::default();
        let whole = |oid| (object(oid), DamagedBlock::WHOLE);
        assert_eq!([1, 2, 1].map(|oid| list.suspect(object(oid))), [true, true, false]);
        assert!(list.all().is_empty(), "not listed");
        list.add(object(3), BLOCK);
        assert_eq!(list.take_unasked(2), [(object(3), BLOCK), whole(1)]);
        assert_eq!(list.take_unasked(2), [whole(2)]);
        assert_eq!(list.add_asked(object(2)), Added::New);
        assert!(!list.suspect(object(2)) && list.take_unasked(9).is_empty());
        assert_eq!(list.all(), [whole(2), (object(3), BLOCK)]);
        assert!(list.begin_round());
        assert_eq!(list.take_unasked(9).len(), 2);
        let suspect = |oid: u32| list.suspect(object(100 + oid));
        assert!((1..LISTED_MAX as u32).all(suspect) && !list.is_full_of_suspects());
        assert!(suspect(0) && list.is_full_of_suspects() && !suspect(LISTED_MAX as u32));
        list.take_unasked(1);
        assert!(!list.is_full_of_suspects() && suspect(LISTED_MAX as u32));
        assert_eq!(list.take_unasked(usize::MAX).len(), LISTED_MAX);
    }

    #[test]
    fn repairs_that_fail_are_requested_less_and_less_often() {
        let list = DamageList::default();
        list.add(object(1), BLOCK);
        let asks = |list: &DamageList| !list.take_unasked(9).is_empty();
        assert!(asks(&list));
        let rounds: Vec<u32> = (1..=1000).filter(|_| list.begin_round() && asks(&list)).collect();
        assert_eq!(rounds, [1, 3, 7, 15, 31, 63, 127, 255, 511, 767]);
        assert!(list.ask_again() && asks(&list), "a scrub begins");
        assert!(list.begin_round() && asks(&list) && !list.begin_round());
    }

    #[test]
    fn damage_list_is_bounded() {
        let list = DamageList::default();
        let last = LISTED_MAX as u32;
        for oid in 1..=last {
            assert_eq!(list.add(object(oid), BLOCK), Added::New);
            list.repaired(Damaged { object: Fid::ZERO, file: Fid::ZERO, block: BLOCK });
        }
        let added = || [1, last + 1, last + 2].map(|oid| list.add(object(oid), BLOCK));
        assert_eq!(added(), [Added::Known, Added::Full, Added::Known]);
        assert_eq!(added(), [Added::Known; 3], "it is logged once");
        assert_eq!((list.all().len(), list.repairs().1.len()), (LISTED_MAX, REPAIRED_MAX));
        list.remove(&[(object(2), BLOCK)]);
        assert_eq!(added(), [Added::Known, Added::New, Added::Full]);
    }
}
