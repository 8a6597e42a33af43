//! Configuration of an import, its parameters, and their limits.

use std::sync::Arc;

use sheen_lnet::Nid;
use sheen_wire::bulk::BULK_BYTES_MAX;

use super::budget::RetainedBudget;

/// Maximum number of requests of an import under way (Lustre's OBD_MAX_RIF_MAX is 512), without
/// urgent and patient ones.
pub const RPCS_IN_FLIGHT_LIMIT: usize = 256;
/// Maximum number of requests of [`super::ImportRequest::urgent`] under way, beyond
/// `max_rpcs_in_flight`: they have slots of their own.
pub const URGENT_BEYOND: usize = 8;
/// Maximum number of requests of [`super::ImportRequest::patient`] under way.
pub const PATIENT_IN_FLIGHT_MAX: usize = 64;
/// Bytes in one of the pages that `max_pages_per_rpc` counts.
pub(super) const PAGE_BYTES: usize = 4096;
/// Largest `max_pages_per_rpc`.
pub(super) const PAGES_PER_RPC_LIMIT: u32 = (BULK_BYTES_MAX / PAGE_BYTES) as u32;

/// Configuration of an import.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// Uuid of the client: the same for all imports of a mount, a new one at each mount. A client
    /// has one import for each target.
    pub client_uuid: String,
    /// Name of the target: `sheen-OST0000`, `MGS`.
    pub target: String,
    /// Uuid of the target, if no other target of the name will do; else empty.
    pub target_uuid: String,
    /// Addresses of the target, in the order to try. A target of this process is called directly if
    /// one of the NIDs is `0@lo` or an own address, or if there are none.
    pub nids: Vec<Nid>,
    /// Feature bits of the client.
    pub features: u64,
    /// Initial parameters.
    pub params: ImportParams,
    /// Memory for retained changes, which imports may share.
    pub retained: Arc<RetainedBudget>,
}

/// An import's parameters. Only the first three can be changed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportParams {
    /// Maximum number of requests under way, 1 to [`RPCS_IN_FLIGHT_LIMIT`].
    pub max_rpcs_in_flight: usize,
    /// Maximum bulk of one request, in pages of 4 KiB, up to 4096. Stored for the code that builds
    /// requests.
    pub max_pages_per_rpc: u32,
    /// Whether bulk is checksummed (over tcp).
    pub checksums: bool,
    /// Whether requests wait for a connection without a limit. The two timeouts then hold only for
    /// [`super::Import::connect`], and for requests that were resent many times.
    pub hard: bool,
    /// Time that the first connection may take before the calls that wait for it fail.
    pub connect_timeout_ms: u64,
    /// Time that a request waits for a lost connection to be restored before it fails with
    /// ETIMEDOUT.
    pub recovery_timeout_ms: u64,
    /// Time without a frame, while requests wait, after which the client pings the server. After
    /// three unanswered pings the connection counts as broken.
    pub ping_interval_ms: u64,
}

impl Default for ImportParams {
    fn default() -> ImportParams {
        ImportParams {
            max_rpcs_in_flight: 8,
            max_pages_per_rpc: 1024,
            checksums: true,
            hard: false,
            connect_timeout_ms: 5_000,
            // Lustre's obd_timeout.
            recovery_timeout_ms: 100_000,
            ping_interval_ms: 10_000,
        }
    }
}

impl ImportConfig {
    /// Returns a configuration with default parameters and no features, for any target of the name.
    pub fn new(client_uuid: &str, target: &str, nids: Vec<Nid>) -> ImportConfig {
        let (client_uuid, target) = (client_uuid.to_owned(), target.to_owned());
        ImportConfig {
            client_uuid,
            target,
            target_uuid: String::new(),
            nids,
            features: 0,
            params: ImportParams::default(),
            retained: Arc::default(),
        }
    }

    /// Restricts the configuration to the target with this uuid.
    pub fn of(self, target_uuid: &str) -> ImportConfig {
        ImportConfig { target_uuid: target_uuid.to_owned(), ..self }
    }
}
