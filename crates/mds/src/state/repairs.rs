//! The damaged blocks that an OST has reported, until the MDT has tried to repair them. The task is
//! in [`crate::repair`].

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_wire::Fid;
use sheen_wire::ost::{Damaged, DamagedBlock};
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
    /// Adds blocks that the OST has reported.
    pub fn add(&self, damaged: Vec<Damaged>) {
        let mut waiting = self.waiting.lock();
        let is_news = !damaged.is_empty();
        for Damaged { object, file, block } in damaged {
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
