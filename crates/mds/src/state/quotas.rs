//! The state of quotas: limits of space and their division among the OSTs, and for each OST what it
//! needs of the MDT. The tasks are in [`crate::quota`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_wire::mgs::Pool;
use sheen_wire::quota::Id;
use sheen_wire::{Errno, Fid, PoolName, Result};
use tokio::sync::Notify;

use crate::state::quota::{Division, Rules};

/// The state of quotas. Its locks are taken after that of the core, and never held across a wait.
pub(crate) struct Quotas {
    division: Mutex<Division>,
    /// Whether any id has a limit of space.
    is_limited: AtomicBool,
    /// Number of the last change of limits.
    generation: AtomicU64,
    /// Notified after a change of limits.
    pub limits_changed: Notify,
    /// Ids near their limits, whose use is to be requested.
    stale: Mutex<BTreeSet<Id>>,
    /// Notified when there are such ids.
    pub has_stale: Notify,
    /// Wakes the task of the owner log.
    pub log: Notify,
    /// Notified when an OST has reported its use.
    pub reported: Notify,
    /// Whether the OSTs have had time to report their use since the start.
    pub is_settled: AtomicBool,
}

impl Quotas {
    pub fn new() -> Quotas {
        let quotas = Quotas {
            division: Mutex::default(),
            is_limited: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            limits_changed: Notify::new(),
            stale: Mutex::default(),
            has_stale: Notify::new(),
            log: Notify::new(),
            reported: Notify::new(),
            is_settled: AtomicBool::new(false),
        };
        // At the start all limits are new.
        quotas.limits_changed.notify_one();
        quotas
    }

    /// Whether any id has a limit of space, as far as known.
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Relaxed)
    }

    /// Runs `work` with the division.
    pub fn divide<T>(&self, work: impl FnOnce(&mut Division) -> T) -> T {
        let mut division = self.division.lock();
        let done = work(&mut division);
        self.is_limited.store(!division.is_empty(), Relaxed);
        done
    }

    /// Sets the limits of ids.
    pub fn set_rules(&self, rules: Vec<(Id, Rules)>) {
        self.divide(|division| rules.into_iter().for_each(|(id, rules)| division.set_rules(id, rules)));
    }

    /// Sets the pools of the file system, with their OSTs.
    pub fn set_pools(&self, pools: &[Pool]) {
        // The MGS lets no pool have another name.
        let named = pools.iter().filter_map(|pool| {
            let osts: BTreeSet<u32> = pool.osts.iter().copied().collect();
            Some((PoolName::new(&pool.name).ok()?, osts))
        });
        if self.divide(|division| division.set_pools(named.collect())) {
            self.limits_changed.notify_one();
        }
    }

    /// Returns the OSTs of a pool.
    ///
    /// # Errors
    /// ENOENT: there is no such pool.
    pub fn members(&self, pool: PoolName) -> Result<BTreeSet<u32>> {
        self.divide(|division| division.members(pool).cloned()).ok_or(Errno::ENOENT)
    }

    /// Notes the number of the last change of limits.
    pub fn notice(&self, generation: u64) {
        if self.generation.load(Relaxed) != generation {
            self.generation.store(generation, Relaxed);
            self.limits_changed.notify_one();
        }
    }

    /// Requests the use of ids.
    pub fn refresh(&self, ids: Vec<Id>) {
        if !ids.is_empty() {
            self.stale.lock().extend(ids);
            self.has_stale.notify_one();
        }
    }

    /// Takes the ids whose use was requested.
    pub fn take_stale(&self) -> Vec<Id> {
        std::mem::take(&mut *self.stale.lock()).into_iter().collect()
    }
}

/// The quotas of one OST.
#[derive(Default)]
pub(crate) struct OspQuota {
    /// Held while allowances are chosen and set on the OST, so that they are set in that order.
    pub allowing: tokio::sync::Mutex<()>,
    /// Held while owners are looked up and sent, so that an older owner never follows a newer one.
    pub owning: tokio::sync::Mutex<()>,
    /// Notified when the OST answers requests.
    pub connected: Notify,
    /// Requests that all limits are sent to the OST again.
    pub again: Notify,
    /// Whether the OST got all limits in this life of the MDT, and reported its use.
    pub has_reported: AtomicBool,
    /// Wakes the task that sends owners of objects.
    pub unowned: Notify,
    /// Wakes the task that finds the files of objects.
    pub lost: Notify,
    needs: Mutex<Needs>,
}

#[derive(Default)]
struct Needs {
    /// Objects without an owner, with their files.
    unowned: BTreeMap<Fid, Fid>,
    /// Those whose files are unknown, too.
    lost: BTreeSet<Fid>,
    /// Whether the OST got the owners of the objects of all files since it was connected.
    has_all_owners: bool,
}

impl OspQuota {
    /// Handles a restart of the OST: it knows no limits, and reports all that it needs again.
    pub fn restarted(&self) {
        *self.needs.lock() = Needs::default();
        self.again.notify_one();
    }

    /// Adds objects without an owner, with their files.
    pub fn add(&self, unowned: Vec<(Fid, Fid)>) {
        let mut needs = self.needs.lock();
        for (object, file) in unowned {
            if file.is_zero() {
                needs.lost.insert(object);
                self.lost.notify_one();
            } else {
                needs.unowned.insert(object, file);
                self.unowned.notify_one();
            }
        }
    }

    /// Returns at most `max` objects without an owner, with their files.
    pub fn unowned(&self, max: usize) -> Vec<(Fid, Fid)> {
        self.needs.lock().unowned.iter().take(max).map(|(object, file)| (*object, *file)).collect()
    }

    /// Returns at most `max` objects whose files are unknown.
    pub fn lost(&self, max: usize) -> Vec<Fid> {
        self.needs.lock().lost.iter().take(max).copied().collect()
    }

    /// Whether an object has no owner so far.
    pub fn is_unowned(&self, object: Fid) -> bool {
        self.needs.lock().unowned.contains_key(&object)
    }

    /// Records that the OST knows the owners of these objects.
    pub fn owned(&self, objects: impl Iterator<Item = Fid>) {
        let mut needs = self.needs.lock();
        for object in objects {
            needs.unowned.remove(&object);
            needs.lost.remove(&object);
        }
    }

    /// Whether the OST got the owners of the objects of all files since it was connected.
    pub fn has_all_owners(&self) -> bool {
        self.needs.lock().has_all_owners
    }

    /// Records that it got them.
    pub fn set_all_owners(&self) {
        self.needs.lock().has_all_owners = true;
    }
}
