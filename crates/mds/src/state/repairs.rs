//! The damaged blocks that an OST has reported, until the MDT has tried to repair them. The task is
//! in [`crate::repair`].

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_objects::StoredSums;
use sheen_wire::Fid;
use sheen_wire::ost::{Damaged, DamagedBlock, OBJECT_SIZE_MAX};
use tokio::sync::Notify;

/// Most blocks that wait. An OST reports others again later.
const WAITING_MAX: usize = 4096;

/// The damaged blocks of one OST.
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

    /// Takes one block.
    pub fn take(&self) -> Option<Damaged> {
        let ((object, block), file) = self.waiting.lock().pop_first()?;
        Some(Damaged { object, file, block })
    }
}

/// Whether an object can have such a block.
fn is_possible(block: &DamagedBlock) -> bool {
    let len_max = StoredSums::new(0, OBJECT_SIZE_MAX).block_bytes();
    let end = block.offset.checked_add(block.len);
    (1..=len_max).contains(&block.len) && end.is_some_and(|end| end <= OBJECT_SIZE_MAX)
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
        let bad = [(0, 0), (0, u64::MAX), (u64::MAX, 1), (OBJECT_SIZE_MAX, 1), (0, OBJECT_SIZE_MAX)];
        repairs.add(bad.into_iter().map(|(offset, len)| damaged(offset, len)).chain([last]).collect());
        assert_eq!((repairs.take(), repairs.take()), (Some(last), None));
    }
}
