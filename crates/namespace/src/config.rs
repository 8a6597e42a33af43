//! Parameters of an MDT.

use std::time::Duration;

use sheen_layout::Asked;
use sheen_wire::mds::RELATIME_SECS;

/// Parameters of an MDT.
#[derive(Clone, Debug)]
pub struct Config {
    /// Index of this MDT, at most [`sheen_wire::seq::MdtIndex::MAX`]. The store of another MDT is
    /// refused.
    pub mdt_index: u32,
    /// The MDT was formatted before. An empty store is then refused: formatting it would hand out
    /// ids again that existing objects have.
    pub was_formatted: bool,
    /// Secret of the directory hashes. Stored in the superblock when an empty store is formatted,
    /// and ignored later. Take it from the system's random source: a user who knows it can create
    /// names that collide in a directory.
    pub hash_seed: u64,
    /// Bits of a name's hash: 56 ([`Config::HASH_BITS_MAX`]), or fewer to test collisions. Stored
    /// like the seed.
    pub hash_bits: u32,
    /// Bound of the caches of clean inodes and entries, in bytes.
    pub cache_bytes_max: usize,
    /// Maximum number of files that one client may have open.
    pub open_files_max: usize,
    /// UID of the root directory, set when an empty store is formatted; ignored later.
    pub root_uid: u32,
    /// GID of the root directory, likewise.
    pub root_gid: u32,
    /// Default layout of the root directory, likewise.
    pub root_layout: Asked,
    /// Relatime: a read updates an access time older than this, even if it is newer than the last
    /// change.
    pub relatime: Duration,
    /// Time in milliseconds for which a file that a rename replaced can still be opened by clients
    /// that looked it up before. 0: not at all.
    pub keep_replaced_ms: u32,
}

impl Config {
    /// Cookies of readdir have 63 bits, of which 7 distinguish names with the same hash. With 56
    /// bits, a directory of a million names has a collision with a probability of 10^-5.
    pub const HASH_BITS_MAX: u32 = 56;
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mdt_index: 0,
            was_formatted: false,
            hash_seed: 0,
            hash_bits: Config::HASH_BITS_MAX,
            cache_bytes_max: 256 << 20,
            open_files_max: 1 << 20,
            root_uid: 0,
            root_gid: 0,
            root_layout: Asked::default(),
            relatime: Duration::from_secs(RELATIME_SECS),
            keep_replaced_ms: 0,
        }
    }
}
