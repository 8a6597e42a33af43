//! Configuration of an MDT.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use sheen_layout::{Asked, Count, Defaults, Limits, MDT_BYTES_DEFAULT, STRIPE_SIZE_DEFAULT, Wanted};
use sheen_lnet::Nid;
use sheen_objects::Sharing;

/// Time for which changes gather before they are committed, in milliseconds. A crash of the whole
/// host may lose the changes of this time that were not fsynced. A commit costs a few milliseconds
/// of disk time: five commits a second leave the disk to other users.
pub const COMMIT_INTERVAL_MS: u64 = 200;
/// Number of operations after which a commit does not wait for the interval. Bounds the memory of
/// uncommitted changes.
pub const COMMIT_OPS_MAX: u64 = 16384;
/// Bytes of changes after which a commit does not wait for the interval.
pub const COMMIT_BYTES_MAX: usize = 32 << 20;
/// While a commit runs, the next batch may grow to this many times the two bounds above. Then
/// further changes wait.
pub const BACKPRESSURE: u64 = 4;
/// Time after a clean restart in which clients may report their open files, in milliseconds. Until
/// then the MDT keeps unlinked files that may be open. No request waits for the end of this time. A
/// client that sends no requests notices the loss of a server's host by TCP keepalive, after 30 to
/// 60 s. Then it has to find the server again, in rounds of up to 7 s.
pub const RECOVERY_WINDOW_MS: u64 = 90_000;

/// Time after a rename in which a client can still open the replaced file, if it looked the name up
/// before, in milliseconds. Longer than the round trip between lookup and open. Short enough that
/// the file's space is free within a second.
pub const KEEP_REPLACED_MS: u32 = 300;

/// Free space of the MDT, in MiB, below which new files get no data there. Inodes and names need
/// the rest: without them no file can be created. The limit is small, so that a small MDT of a few
/// GiB still has most of its space for data.
pub const DOM_THRESHOLD_FREE_MB: u64 = 256;

/// Configuration of an MDT. [`MdtConfig::new`] sets the fields that have defaults.
#[derive(Clone, Debug)]
pub struct MdtConfig {
    /// Directory of the MDT. Created if missing, formatted if empty.
    pub dir: PathBuf,
    /// Name of the file system.
    pub fsname: String,
    /// Index of the MDT.
    pub index: u32,
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
    /// Addresses of this process, as registered with the MGS.
    pub nids: Vec<String>,
    /// Number of MDTs of this process on each device. All MDTs of a process share one value.
    pub sharing: Sharing,
    /// Whether this process runs a data service for the MDT (DoM). Without one, layouts with a
    /// component on the MDT are refused.
    pub holds_data: bool,
    /// Owner of the root directory, set when the MDT is formatted.
    pub root_uid: u32,
    /// Group of the root directory, likewise.
    pub root_gid: u32,
    /// Default layout of the root directory, likewise.
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
    /// Returns a configuration with defaults for all other fields.
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

/// Parameters that can be changed while the MDT runs.
#[derive(Debug)]
pub(crate) struct Tunables {
    pub commit_interval_ms: AtomicU64,
    pub commit_ops_max: AtomicU64,
    /// A change that depends on another client's change is answered when that one is durable.
    pub commit_on_sharing: AtomicBool,
    /// Changes of owner, group or mode are answered when they are durable.
    pub sync_permission: AtomicBool,
    /// As `mdt.*.enable_chprojid_gid`: the owners who may change projects, for
    /// [`sheen_namespace::Permitted::from_gid`].
    pub chprojid_gid: AtomicI64,
    /// As `mdt.*.enable_remote_dir_gid`: the owners who may request layouts of directories.
    pub remote_dir_gid: AtomicI64,
    /// As `lod.*.stripecount`: -1, or 1 to 2000.
    pub stripe_count: AtomicI64,
    pub stripe_size: AtomicU64,
    /// As `lod.*.stripeoffset`: -1 leaves it to the allocator.
    pub stripe_offset: AtomicI64,
    pub qos_threshold_percent: AtomicU64,
    pub qos_prio_free_percent: AtomicU64,
    /// Maximum bytes of a new file on the MDT (`lod.*.dom_stripesize`), a multiple of 64 KiB. 0:
    /// none.
    pub dom_bytes_max: AtomicU64,
    /// New files get no data on the MDT while it has less free space than this, in MiB.
    pub dom_threshold_free_mb: AtomicU64,
}

impl Tunables {
    pub fn new(config: &MdtConfig) -> Tunables {
        let limits = Limits::default();
        // The file system of an ordinary user has no superuser who could do it instead.
        let remote_dir_gid = if config.root_uid == 0 { 0 } else { -1 };
        Tunables {
            commit_interval_ms: AtomicU64::new(config.commit_interval_ms),
            commit_ops_max: AtomicU64::new(config.commit_ops_max.max(1)),
            commit_on_sharing: AtomicBool::new(false),
            sync_permission: AtomicBool::new(false),
            chprojid_gid: AtomicI64::new(0),
            remote_dir_gid: AtomicI64::new(remote_dir_gid),
            stripe_count: AtomicI64::new(1),
            stripe_size: AtomicU64::new(u64::from(STRIPE_SIZE_DEFAULT)),
            stripe_offset: AtomicI64::new(-1),
            qos_threshold_percent: AtomicU64::new(u64::from(limits.threshold_percent)),
            qos_prio_free_percent: AtomicU64::new(u64::from(limits.prio_free_percent)),
            dom_bytes_max: AtomicU64::new(MDT_BYTES_DEFAULT),
            dom_threshold_free_mb: AtomicU64::new(DOM_THRESHOLD_FREE_MB),
        }
    }

    /// Returns the striping of files for which none was requested.
    pub fn defaults(&self) -> Defaults {
        let count = Count::from_number(self.stripe_count.load(Relaxed)).ok().flatten();
        let size = u32::try_from(self.stripe_size.load(Relaxed)).ok();
        let fallback = Defaults::default();
        Defaults { stripe_size: size.unwrap_or(fallback.stripe_size), count: count.unwrap_or(fallback.count) }
    }

    /// Applies `stripeoffset` if the request names no first OST.
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
