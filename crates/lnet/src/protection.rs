//! The least protection of this process's connections: its own choice, and what its file systems
//! demand.
//!
//! Invariant: no demand lowers what the user of the process has chosen, or what another file system
//! demands.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_wire::auth::Flavor;

use crate::{Keys, Net, Sender, Trust};

/// The flavors that file systems demand, by file system.
#[derive(Default)]
pub(crate) struct Demands(Mutex<BTreeMap<String, Flavor>>);

impl Demands {
    fn strictest(&self) -> Option<Flavor> {
        self.0.lock().values().max().copied()
    }
}

impl Net {
    /// Sets the least flavor of new connections of this process, because a file system demands it.
    /// Present connections stay ([`Net::protects`]).
    pub fn demand(&self, fsname: &str, flavor: Flavor) {
        self.demands().0.lock().insert(fsname.to_owned(), flavor);
    }

    /// Returns the flavor that a file system demands. `None`: it leaves the flavor to its
    /// processes.
    pub fn demanded(&self, fsname: &str) -> Option<Flavor> {
        self.demands().0.lock().get(fsname).copied()
    }

    /// Returns whether a connection has the protection that this process and its file systems
    /// demand.
    pub fn protects(&self, sender: &Sender) -> bool {
        match self.trust() {
            Trust::Keys(keys) => sender.flavor() >= self.chosen(keys).unwrap_or(Flavor::Null),
            Trust::All => true,
        }
    }

    /// Returns the least flavor of a new connection. By default it is null within a host: nobody
    /// but root can change what two processes of a host send each other.
    pub(crate) fn least_flavor(&self, keys: &Keys, is_within_host: bool) -> Flavor {
        let default = if is_within_host { Flavor::Null } else { Flavor::Integrity };
        self.chosen(keys).unwrap_or(default)
    }

    /// Returns the flavor that the user or a file system has chosen.
    fn chosen(&self, keys: &Keys) -> Option<Flavor> {
        keys.flavor.max(self.demands().strictest())
    }
}
