//! The least protection of this process's connections: its own choice, and what its file systems
//! demand.
//!
//! Invariant: no demand lowers what the user of the process has chosen, or what another file system
//! demands. A demand replaces the default for all connections of the process.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_wire::auth::Flavor;

/// The flavors that file systems demand, by file system.
#[derive(Default)]
pub(crate) struct Demands(Mutex<BTreeMap<String, Flavor>>);

impl Demands {
    /// Sets the flavor that a file system demands, if any.
    pub(crate) fn set(&self, fsname: &str, flavor: Option<Flavor>) {
        let mut demands = self.0.lock();
        match flavor {
            Some(flavor) => drop(demands.insert(fsname.to_owned(), flavor)),
            None => drop(demands.remove(fsname)),
        }
    }

    /// Returns the flavor that a file system demands, if any.
    pub(crate) fn of(&self, fsname: &str) -> Option<Flavor> {
        self.0.lock().get(fsname).copied()
    }

    /// Returns the least flavor of all connections. `chosen`: by the user of the process.
    pub(crate) fn least(&self, chosen: Option<Flavor>) -> Option<Flavor> {
        chosen.max(self.0.lock().values().max().copied())
    }
}
