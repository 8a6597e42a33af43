//! The damaged blocks and lost objects that an OST has reported, until the MDT has tried to repair
//! them. The task is in [`crate::mirror_repair`].

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_objects::StoredSums;
use sheen_wire::Fid;
use sheen_wire::ost::{Damaged, DamagedBlock, OBJECT_SIZE_MAX};
use tokio::sync::Notify;

/// Most blocks that wait. An OST reports others again later.
const WAITING_MAX: usize = 4096;

/// The damage of one OST.
#[derive(Default)]
pub(crate) struct Repairs {
    /// With their files.
    waiting: Mutex<BTreeMap<(Fid, DamagedBlock), Fid>>,
    /// Wakes the task.
    pub wake: Notify,
}

impl Repairs {
    /// Adds blocks that the OST has reported. Leaves out blocks that no object has.
    pub fn add(&self, damaged: Vec<Damaged>) {
        let mut waiting = self.waiting.lock();
        let mut is_news = false;
        for Damaged { object, file, block } in damaged.into_iter().filter(|damaged| is_possible(&damaged.block)) {
            is_news = true;
            if waiting.len() < WAITING_MAX || waiting.contains_key(&(object, block)) {
                waiting.insert((object, block), file);
            }
        }
        if is_news {
            self.wake.notify_one();
        }
    }

    /// Takes a block, or a lost object if there are only these: they take longer.
    pub fn take(&self) -> Option<Damaged> {
        let mut waiting = self.waiting.lock();
        let block = waiting.keys().find(|(_, block)| !block.is_whole());
        let (object, block) = *block.or_else(|| waiting.keys().next())?;
        let file = waiting.remove(&(object, block))?;
        Some(Damaged { object, file, block })
    }
}

/// Whether an object can have such a block.
fn is_possible(block: &DamagedBlock) -> bool {
    let len_max = StoredSums::new(0, OBJECT_SIZE_MAX).block_bytes();
    let end = block.offset.checked_add(block.len);
    let has_place = (1..=len_max).contains(&block.len) && end.is_some_and(|end| end <= OBJECT_SIZE_MAX);
    block.is_whole() || has_place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_block_that_no_object_has_is_left_out() {
        let repairs = Repairs::default();
        let damaged = |offset, len| Damaged {
            object: Fid::new(0x2_8000_0401, 1),
            file: Fid::new(0x2_0000_0401, 5),
            block: DamagedBlock { offset, len, sum: 0 },
        };
        let last = damaged(OBJECT_SIZE_MAX - 10, 10);
        let bad = [(1, 0), (0, u64::MAX), (u64::MAX, 1), (OBJECT_SIZE_MAX, 1), (0, OBJECT_SIZE_MAX)];
        repairs.add(bad.into_iter().map(|(offset, len)| damaged(offset, len)).chain([last]).collect());
        assert_eq!((repairs.take(), repairs.take()), (Some(last), None));
    }

    #[test]
    fn lost_objects_are_repaired_after_damaged_blocks() {
        let repairs = Repairs::default();
        let (file, block) = (Fid::new(0x2_0000_0401, 5), DamagedBlock { offset: 0, len: 9, sum: 1 });
        let damaged = |oid, block| Damaged { object: Fid::new(0x2_8000_0401, oid), file, block };
        repairs.add(vec![damaged(1, DamagedBlock::WHOLE), damaged(2, DamagedBlock::WHOLE), damaged(3, block)]);
        let taken: Vec<u32> = std::iter::from_fn(|| repairs.take()).map(|damaged| damaged.object.oid).collect();
        assert_eq!(taken, [3, 1, 2]);
    }
}
