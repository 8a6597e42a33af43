//! The state of an MDT, which all operations share.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::{
    Config, Decided, HeldOrphan, Store, StoreError,
    changelog::Changelog,
    clients::Clients,
    handles::Handles,
    held::Replaced,
    ids::{Objects, Sequences},
    record::Counters,
    relayouts::{Swaps, Takes},
    replies::Replies,
    tables::Tables,
};

/// The state of an MDT.
pub struct Namespace<S> {
    pub(crate) tables: Tables<S>,
    pub(crate) handles: Handles,
    pub(crate) replaced: Replaced,
    /// Set by the operation in progress, for [`crate::Done::orphan`].
    pub(crate) orphan: Option<HeldOrphan>,
    pub(crate) objects: Objects,
    pub(crate) sequences: Sequences,
    pub(crate) swaps: Swaps,
    pub(crate) takes: Takes,
    pub(crate) replies: Replies,
    pub(crate) clients: Clients,
    pub(crate) changelog: Changelog,
    pub(crate) replaying: Option<Decided>,
    pub(crate) counters: Counters,
    pub(crate) config: Config,
}

impl<S: Store> Namespace<S> {
    /// Returns the number of inodes in use.
    pub fn files(&self) -> u64 {
        self.counters.files
    }

    /// Returns and clears the last store error for which a request got EIO.
    pub fn take_fault(&mut self) -> Option<StoreError> {
        self.tables.take_fault()
    }

    /// Returns a name's position in its directory, see [`hash_of_name`].
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        hash_of_name(self.config.hash_seed, self.config.hash_bits, name)
    }
}

/// Returns a name's position in its directory: a keyed hash, so that users cannot choose names that
/// collide. It is never 0, so that cookies are above those of `.` and `..`.
pub(crate) fn hash_of_name(seed: u64, bits: u32, name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, !seed.rotate_left(32));
    hasher.write(name);
    (hasher.finish() >> (64 - bits.clamp(1, Config::HASH_BITS_MAX))).max(1)
}
