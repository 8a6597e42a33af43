//! Targets of one process that lie on one device report a share of its space each. So the space
//! that `df` adds up is that of the device. Grants are not divided: each target grants from the
//! space of the whole device, and its grants reduce what the others can grant.
//!
//! A process creates one [`Sharing`] for all of its targets. Each target joins with the device of
//! its directory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sheen_wire::StatFs;

use crate::Grants;

/// Number of this process's targets on each device. Clones share the count.
#[derive(Clone, Default, Debug)]
pub struct Sharing {
    devices: Arc<Mutex<BTreeMap<u64, Device>>>,
}

#[derive(Default, Debug)]
struct Device {
    /// Targets that divide the space.
    targets: u64,
    /// All targets that grant from it.
    shares: u64,
    grants: Arc<Mutex<Grants>>,
}

/// One target's share of its device, while this value lives.
#[derive(Debug)]
pub struct Share {
    all: Sharing,
    device: u64,
    counts: u64,
    grants: Arc<Mutex<Grants>>,
    target: u64,
}

impl Sharing {
    /// Creates a count without targets.
    pub fn new() -> Sharing {
        Sharing::default()
    }

    /// Adds a target on `device` (`st_dev`).
    pub fn join(&self, device: u64) -> Share {
        self.enter(device, 1)
    }

    /// Adds a target on `device` that grants together with the others but does not divide the
    /// space. An MDT's data service is such a target: its space is shown as the MDT's.
    pub fn join_uncounted(&self, device: u64) -> Share {
        self.enter(device, 0)
    }

    fn enter(&self, device: u64, counts: u64) -> Share {
        let mut devices = self.lock();
        let of = devices.entry(device).or_default();
        of.targets += counts;
        of.shares += 1;
        let grants = of.grants.clone();
        drop(devices);
        let target = grants.lock().unwrap_or_else(PoisonError::into_inner).join();
        Share { all: self.clone(), device, counts, grants, target }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Returns the number of targets that divide the device, this one included if it counts.
    pub fn targets(&self) -> u64 {
        self.all.lock().get(&self.device).map_or(1, |device| device.targets).max(1)
    }

    /// Returns the grants of the device.
    pub fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this target's number in the device's grants.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// Returns this target's part of the device's figures.
    pub fn of(&self, device: StatFs) -> StatFs {
        let n = self.targets();
        StatFs {
            bsize: device.bsize,
            blocks: device.blocks / n,
            bfree: device.bfree / n,
            bavail: device.bavail / n,
            files: device.files / n,
            ffree: device.ffree / n,
            state: device.state,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.grants().leave(self.target);
        let mut devices = self.all.lock();
        if let Some(device) = devices.get_mut(&self.device) {
            device.targets -= self.counts;
            device.shares -= 1;
            if device.shares == 0 {
                devices.remove(&self.device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_shares_add_up_to_the_device() {
        let device = StatFs { bsize: 4096, blocks: 4000, bfree: 2000, bavail: 1000, files: 400, ffree: 200, state: 0 };
        let all = Sharing::new();
        let first = all.join(7);
        assert_eq!(first.of(device), device, "alone on a device: all of it");
        let others: Vec<_> = (0..3).map(|_| all.clone().join(7)).collect();
        let elsewhere = all.join(8);
        let sum: u64 = others.iter().chain([&first]).map(|s| s.of(device).blocks).sum();
        assert_eq!(sum, device.blocks);
        assert_eq!(
            first.of(device),
            StatFs { bsize: 4096, blocks: 1000, bfree: 500, bavail: 250, files: 100, ffree: 50, state: 0 }
        );
        assert_eq!(elsewhere.of(device), device);
        drop(others);
        assert_eq!(first.of(device), device, "those that left no longer count");
        let beside = all.join_uncounted(7);
        assert_eq!((first.of(device), beside.of(device)), (device, device), "an uncounted target takes no space");
        drop(first);
        assert!(Arc::ptr_eq(&beside.grants, &all.join(7).grants), "its grants still count");
    }
}
