//! How an MDT is run.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use sheen_layout::{Asked, Count, Defaults, Limits, MDT_BYTES_DEFAULT, STRIPE_SIZE_DEFAULT, Wanted};
use sheen_lnet::Nid;
use sheen_objects::Sharing;

/// How long changes gather before they are committed, in milliseconds: what a crash of the whole
/// host may take from those who did not fsync. A commit costs a few milliseconds of disk time, so
/// five a second leave the disk to others.
pub const COMMIT_INTERVAL_MS: u64 = 200;
/// Operations after which a commit does not wait for the interval: bounds the memory of what is not
/// committed.
pub const COMMIT_OPS_MAX: u64 = 16384;
/// Bytes of changes after which a commit does not wait for the interval.
pub const COMMIT_BYTES_MAX: usize = 32 << 20;
/// While a commit runs the next batch may grow to this many times the bounds above; then changes
/// wait.
pub const BACKPRESSURE: u64 = 4;
/// How long after a restart clients may say which files they have open, in milliseconds: until then
/// what is unlinked and may be open is kept, and nobody waits. A client that asks for nothing
/// notices that a server's host was lost when TCP's keepalive does, after 30 to 60 s; then it has
/// to find the server, in rounds of up to 7 s.
pub const RECOVERY_WINDOW_MS: u64 = 90_000;

/// How long a file that a rename replaced can still be opened by a client that looked its name up
/// before, in milliseconds: more than a round trip between the two, and little enough that its
/// space is free within a second.
pub const KEEP_REPLACED_MS: u32 = 300;

/// Free space of the MDT, in MiB, below which new files have no data there: inodes and names,
/// without which there are no files at all, need the rest. A small MDT of a few GiB has most of its
/// space for data all the same.
pub const DOM_THRESHOLD_FREE_MB: u64 = 256;

/// How an MDT is run. The fields with defaults can be left to [`MdtConfig::new`].
#[derive(Clone, Debug)]
pub struct MdtConfig {
    /// Its directory; made and formatted if missing or empty.
    pub dir: PathBuf,
    /// File system.
    pub fsname: String,
    /// Index of the MDT.
    pub index: u32,
    /// Where the MGS is.
    pub mgs: Vec<Nid>,
    /// Where this process can be reached, as told to the MGS.
    pub nids: Vec<String>,
    /// How many MDTs of this process lie on which device: one value for all of them.
    pub sharing: Sharing,
    /// Whether a data service stands beside it in this process, for files whose beginning is on the
    /// MDT. Without one they are refused.
    pub holds_data: bool,
    /// Owner of the root directory, when the MDT is formatted.
    pub root_uid: u32,
    /// Its group, likewise.
    pub root_gid: u32,
    /// Its default layout, likewise.
    pub root_layout: Asked,
    /// See [`COMMIT_INTERVAL_MS`].
    pub commit_interval_ms: u64,
    /// See [`COMMIT_OPS_MAX`].
    pub commit_ops_max: u64,
    /// See [`RECOVERY_WINDOW_MS`].
    pub recovery_window_ms: u64,
    /// See [`KEEP_REPLACED_MS`].
    pub keep_replaced_ms: u32,
    /// Memory for pages of the store, in bytes.
    pub store_cache_bytes: usize,
    /// Memory for inodes and entries, in bytes.
    pub cache_bytes: usize,
}

impl MdtConfig {
    /// With defaults for everything but what it is and where.
    pub fn new(dir: impl Into<PathBuf>, fsname: &str, index: u32, mgs: Vec<Nid>, nids: Vec<String>) -> MdtConfig {
        MdtConfig {
            dir: dir.into(),
            fsname: fsname.to_string(),
            index,
            mgs,
            nids,
            sharing: Sharing::new(),
            holds_data: false,
            root_uid: 0,
            root_gid: 0,
            root_layout: Asked::default(),
            commit_interval_ms: COMMIT_INTERVAL_MS,
            commit_ops_max: COMMIT_OPS_MAX,
            recovery_window_ms: RECOVERY_WINDOW_MS,
            keep_replaced_ms: KEEP_REPLACED_MS,
            store_cache_bytes: crate::store::CACHE_BYTES,
            cache_bytes: sheen_namespace::Config::default().cache_bytes_max,
        }
    }
}

/// What can be changed while the MDT runs.
#[derive(Debug)]
pub(crate) struct Tunables {
    pub commit_interval_ms: AtomicU64,
    pub commit_ops_max: AtomicU64,
    /// As `lod.*.stripecount`: -1, or 1 to 2000.
    pub stripe_count: AtomicI64,
    pub stripe_size: AtomicU64,
    /// As `lod.*.stripeoffset`: -1 leaves it to the allocator.
    pub stripe_offset: AtomicI64,
    pub qos_threshold_percent: AtomicU64,
    pub qos_prio_free_percent: AtomicU64,
    /// Bytes of a new file that lie on the MDT at most (`lod.*.dom_stripesize`), a multiple of 64
    /// KiB; 0: none.
    pub dom_bytes_max: AtomicU64,
    /// While the MDT has less than so much free, new files have nothing there.
    pub dom_threshold_free_mb: AtomicU64,
}

impl Tunables {
    pub fn new(config: &MdtConfig) -> Tunables {
        let limits = Limits::default();
        Tunables {
            commit_interval_ms: AtomicU64::new(config.commit_interval_ms),
            commit_ops_max: AtomicU64::new(config.commit_ops_max.max(1)),
            stripe_count: AtomicI64::new(1),
            stripe_size: AtomicU64::new(u64::from(STRIPE_SIZE_DEFAULT)),
            stripe_offset: AtomicI64::new(-1),
            qos_threshold_percent: AtomicU64::new(u64::from(limits.threshold_percent)),
            qos_prio_free_percent: AtomicU64::new(u64::from(limits.prio_free_percent)),
            dom_bytes_max: AtomicU64::new(MDT_BYTES_DEFAULT),
            dom_threshold_free_mb: AtomicU64::new(DOM_THRESHOLD_FREE_MB),
        }
    }

    /// Striping where nobody asked.
    pub fn defaults(&self) -> Defaults {
        let count = Count::from_number(self.stripe_count.load(Relaxed)).ok().flatten();
        let size = u32::try_from(self.stripe_size.load(Relaxed)).ok();
        let fallback = Defaults::default();
        Defaults { stripe_size: size.unwrap_or(fallback.stripe_size), count: count.unwrap_or(fallback.count) }
    }

    /// Applies `stripeoffset` where nobody said where to begin.
    pub fn place(&self, wanted: &mut Wanted) {
        if wanted.start.is_none() && wanted.osts.is_empty() {
            wanted.start = u32::try_from(self.stripe_offset.load(Relaxed)).ok();
        }
    }

    pub fn limits(&self) -> Limits {
        let percent = |cell: &AtomicU64| cell.load(Relaxed).min(100) as u32;
        Limits {
            threshold_percent: percent(&self.qos_threshold_percent),
            prio_free_percent: percent(&self.qos_prio_free_percent),
            ..Limits::default()
        }
    }
}
