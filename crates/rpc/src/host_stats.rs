//! The statistics of the clients of one host on one target. [`crate::ExportStats`] has all hosts.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_params::Stats;

/// The statistics of one host.
pub(crate) struct HostStats {
    /// Without histograms, which take 320 bytes for each counter.
    pub stats: Stats,
    /// Uuids of its clients, by the ids of their exports.
    pub clients: Mutex<BTreeMap<u64, String>>,
}
