//! Sizes and bounds that several layers share.

/// Default of [`crate::ClientOptions::layouts_max`], the number of cached layouts: a few megabytes
/// for files of a few stripes.
pub const LAYOUTS_MAX: usize = 16384;
/// Default of [`crate::ClientOptions::inodes_max`], the number of files whose attributes and names
/// are cached. It is enough for a tree of 100,000 files and their directories, in some 100 MB. It
/// equals the default bound on unused locks.
pub const INODES_MAX: usize = 128 << 10;
/// Page size in bytes for `max_pages_per_rpc` and for statistics, independent of the host's page
/// size.
pub const PAGE_BYTES: u64 = 4096;
/// Maximum bulk size in bytes of a request to an OST that is not configured yet: Lustre's 1024
/// pages.
pub const BYTES_PER_RPC_DEFAULT: u64 = 1024 * PAGE_BYTES;
/// Minimum size in bytes of writes that bypass the write-back cache: gathering them would cost more
/// than it saves.
pub const CACHED_WRITE_BYTES_MAX: usize = 256 << 10;
