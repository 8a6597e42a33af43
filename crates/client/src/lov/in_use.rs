//! Locks in use for a write, released OST by OST.
//!
//! While an OST is disconnected, its part of a write does not finish. A client that waits for the
//! write's locks at other OSTs must not wait that long. Those OSTs would evict this client, which
//! would then lose all its dirty data there. So the locks of an OST are in use until its part of
//! the write is done. The locks of an OST without a part are in use until the write begins.
//!
//! For an append this is enough. Another client must lock all objects to find the end of the file,
//! so it cannot as long as any of the append's locks is in use.
//!
//! The same holds for a truncate or an allocation of several objects ([`InUse::release_all_but`]).
//!
//! An append is registered at each of its OSTs ([`Appending`]) for as long as the locks there are
//! in use, or until a request fails. Before it is repeated, it is registered again.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use sheen_layout::Layout;

use crate::{locks::LockRef, writeback::Appending};

/// The locks of a write. See the module's documentation.
#[derive(Default)]
pub struct InUse(Mutex<BTreeMap<u32, OfOst>>);

#[derive(Default)]
struct OfOst {
    /// Number of unfinished requests of the write.
    left: usize,
    locks: Vec<LockRef>,
    append: Option<Arc<Appending>>,
}

impl InUse {
    /// Collects locks, each with the stripe whose object it locks.
    pub fn new(layout: &Layout, locks: impl IntoIterator<Item = (usize, LockRef)>) -> InUse {
        let mut osts: BTreeMap<u32, OfOst> = BTreeMap::new();
        for (stripe, lock) in locks {
            if let Some(stripe) = layout.stripes().get(stripe) {
                osts.entry(stripe.ost).or_default().locks.push(lock);
            }
        }
        InUse(Mutex::new(osts))
    }

    /// Collects the locks of an append, by stripe, and its registrations, each with the index of
    /// the OST.
    pub fn of_append(
        layout: &Layout,
        locks: Vec<LockRef>,
        appends: impl IntoIterator<Item = (u32, Appending)>,
    ) -> InUse {
        let InUse(osts) = InUse::new(layout, locks.into_iter().enumerate());
        let mut osts = osts.into_inner();
        for (ost, append) in appends {
            osts.entry(ost).or_default().append = Some(Arc::new(append));
        }
        InUse(Mutex::new(osts))
    }

    /// Returns the registration of the append at the OST of that index, if it is still registered
    /// there.
    pub fn append(&self, ost: u32) -> Option<Arc<Appending>> {
        self.0.lock().get(&ost)?.append.clone()
    }

    /// Ends the registration at an OST where a request of the append failed. Later steps of the
    /// append may wait for the end of a recovery.
    pub fn end_append(&self, ost: u32) {
        let append = self.0.lock().get_mut(&ost).and_then(|of| of.append.take());
        drop(append);
    }

    /// Registers the append again, with `register`, at the OSTs where a request failed. Returns
    /// whether the client has lost none of the locks that are still in use.
    pub fn resume_append(&self, register: impl Fn(u32) -> Option<Appending>) -> bool {
        let mut osts = self.0.lock();
        for (ost, of) in osts.iter_mut().filter(|(_, of)| of.append.is_none()) {
            of.append = register(*ost).map(Arc::new);
        }
        osts.values().flat_map(|of| &of.locks).all(|lock| !lock.is_lost())
    }

    /// Begins the write, with one request per item to the OST of that index. Releases the locks of
    /// other OSTs.
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

    /// Releases the locks of all OSTs but these. Returns whether there were any.
    pub fn release_all_but(&self, osts: &[u32]) -> bool {
        let released = self.0.lock().extract_if(.., |ost, _| !osts.contains(ost)).collect::<Vec<_>>();
        !released.is_empty()
    }

    /// Notes that a request to the OST succeeded. Not to be called after a failure, because the
    /// write may have to be completed.
    pub fn done(&self, ost: u32) {
        let mut osts = self.0.lock();
        let Some(of) = osts.get_mut(&ost) else { return };
        of.left = of.left.saturating_sub(1);
        let last = if of.left == 0 { osts.remove(&ost) } else { None };
        drop(osts);
        drop(last);
    }
}
