//! The statistics of the clients of one host on one target. [`crate::ExportStats`] has all hosts.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_params::Tallies;

/// The statistics of one host.
pub(crate) struct HostStats {
    pub tallies: Tallies,
    /// Uuids of its clients, by the ids of their exports.
    pub clients: Mutex<BTreeMap<u64, String>>,
}
