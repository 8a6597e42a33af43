//! The damaged blocks and lost objects that an OST has reported, until the MDT has tried to repair
//! them. The tasks are in [`crate::mirror_repair`] and [`crate::lost_objects`].
//!
//! Invariant: blocks never wait for lost objects. The copy of a lost object may take hours, and a
//! scrub may report thousands of missing objects of which few are lost.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_objects::StoredSums;
use sheen_wire::Fid;
use sheen_wire::ost::{Damaged, DamagedBlock, OBJECT_SIZE_MAX};
use tokio::sync::Notify;

/// Most blocks, and most lost objects, that wait. An OST reports others again later.
const WAITING_MAX: usize = 4096;

/// The damage of one OST.
#[derive(Default)]
pub(crate) struct Repairs {
    pub blocks: Queue,
    pub lost: Queue,
}

/// Damage of one kind.
#[derive(Default)]
pub(crate) struct Queue {
    /// With their files.
    waiting: Mutex<BTreeMap<(Fid, DamagedBlock), Fid>>,
    /// Wakes the task.
    wake: Notify,
}

impl Repairs {
    /// Adds damage that the OST has reported. Leaves out blocks that no object has.
    pub fn add(&self, damaged: Vec<Damaged>) {
        let possible = damaged.into_iter().filter(|damaged| is_possible(&damaged.block));
        let (lost, blocks): (Vec<_>, Vec<_>) = possible.partition(|damaged| damaged.block.is_whole());
        self.lost.add(lost);
        self.blocks.add(blocks);
    }
}

impl Queue {
    fn add(&self, damaged: Vec<Damaged>) {
        if damaged.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        for Damaged { object, file, block } in damaged {
            if waiting.len() < WAITING_MAX || waiting.contains_key(&(object, block)) {
                waiting.insert((object, block), file);
            }
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// Waits for damage, and takes it. For one task.
    pub async fn next(&self) -> Damaged {
        loop {
            if let Some(damaged) = self.take() {
                return damaged;
            }
            self.wake.notified().await;
        }
    }

    fn take(&self) -> Option<Damaged> {
        let ((object, block), file) = self.waiting.lock().pop_first()?;
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
        assert_eq!((repairs.blocks.take(), repairs.blocks.take(), repairs.lost.take()), (Some(last), None, None));
    }

    #[test]
    fn damaged_block_is_added_when_the_queue_of_lost_objects_is_full() {
        let repairs = Repairs::default();
        let (file, block) = (Fid::new(0x2_0000_0401, 5), DamagedBlock { offset: 0, len: 9, sum: 1 });
        let damaged = |oid, block| Damaged { object: Fid::new(0x2_8000_0401, oid), file, block };
        let full = WAITING_MAX as u32;
        repairs.add((0..=full).map(|oid| damaged(oid, DamagedBlock::WHOLE)).collect());
        repairs.add(vec![damaged(full, DamagedBlock::WHOLE), damaged(full, block)]);
        assert_eq!((repairs.blocks.take(), repairs.blocks.take()), (Some(damaged(full, block)), None));
        let lost: Vec<u32> = std::iter::from_fn(|| repairs.lost.take()).map(|damaged| damaged.object.oid).collect();
        assert_eq!(lost, (0..full).collect::<Vec<u32>>());
    }
}
