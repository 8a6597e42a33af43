//! Locks in use for a write, given back OST by OST.
//!
//! A part of a write takes as long as its OST is away. Who wants what other OSTs have locked for
//! the write does not wait that long: they would give this client up, with all that it has not
//! written there. So the locks of an OST are in use until its part is done; where it has none,
//! until the write begins.
//!
//! To an append that is enough: as long as any of its locks is in use, nobody else finds the end of
//! the file, for who looks for it locks all objects.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_layout::Layout;

use crate::locks::LockRef;

/// See the module.
#[derive(Default)]
pub struct InUse(Mutex<BTreeMap<u32, OfOst>>);

#[derive(Default)]
struct OfOst {
    /// Requests of the write that are not answered.
    left: usize,
    locks: Vec<LockRef>,
}

impl InUse {
    /// Locks, each with the stripe whose object it is on.
    pub fn new(layout: &Layout, locks: impl IntoIterator<Item = (usize, LockRef)>) -> InUse {
        let mut osts: BTreeMap<u32, OfOst> = BTreeMap::new();
        for (stripe, lock) in locks {
            if let Some(stripe) = layout.stripes().get(stripe) {
                osts.entry(stripe.ost).or_default().locks.push(lock);
            }
        }
        InUse(Mutex::new(osts))
    }

    /// The write begins, with a request to each of these OSTs.
    pub fn begin(&self, requests: impl Iterator<Item = u32>) {
        let mut osts = self.0.lock();
        if osts.is_empty() {
            return;
        }
        osts.values_mut().for_each(|of| of.left = 0);
        for ost in requests {
            if let Some(of) = osts.get_mut(&ost) {
                of.left += 1;
            }
        }
        let idle = osts.extract_if(.., |_, of| of.left == 0).collect::<Vec<_>>();
        drop(osts);
        drop(idle);
    }

    /// One of them is done. (Where one fails the rest of the write may have to follow.)
    pub fn done(&self, ost: u32) {
        let mut osts = self.0.lock();
        let Some(of) = osts.get_mut(&ost) else { return };
        of.left = of.left.saturating_sub(1);
        let last = if of.left == 0 { osts.remove(&ost) } else { None };
        drop(osts);
        drop(last);
    }
}
