//! Quotas (module `quotas`), as the service sees them. It divides the limits of space among the
//! OSTs, and answers queries.

use std::collections::BTreeSet;

use sheen_wire::{
    PoolName, Time,
    quota::{Grace, Id, Kind, Setting},
};

use crate::{Namespace, Store};

/// Approximate bytes of a changed record, so that the service commits it.
const RECORD_BYTES: usize = 64;

impl<S: Store> Namespace<S> {
    /// Returns the limits that apply to an id, within a pool or all targets, and whether they are
    /// the default ones. Default limits never apply to user 0, group 0 and project 0.
    pub fn quota_setting(&self, id: Id, pool: Option<PoolName>) -> (Setting, bool) {
        let quotas = &self.tables.quotas;
        pool.map_or_else(
            || quotas.setting(id),
            |pool| {
                let (space, is_default) = quotas.pools().limits(id, pool);
                (Setting { space, ..Setting::default() }, is_default)
            },
        )
    }

    /// Returns the default limits of users, groups or projects, within a pool or all targets.
    pub fn quota_default(&self, kind: Kind, pool: Option<PoolName>) -> Setting {
        let quotas = &self.tables.quotas;
        let within = |pool| Setting { space: quotas.pools().default_of(kind, pool), ..Setting::default() };
        pool.map_or_else(|| quotas.default_of(kind), within)
    }

    /// Returns the grace times of users, groups or projects, within a pool or all targets.
    pub fn quota_grace(&self, kind: Kind, pool: Option<PoolName>) -> Grace {
        let quotas = &self.tables.quotas;
        let within = |pool| Grace { space: quotas.pools().grace(kind, pool), ..Grace::default() };
        pool.map_or_else(|| quotas.grace(kind), within)
    }

    /// Returns the pools with limits of space that apply to an id.
    pub fn limiting_pools(&self, id: Id) -> BTreeSet<PoolName> {
        self.tables.quotas.pools().of(id)
    }

    /// Returns the ids to which a limit of space or files applies, within all targets or a pool.
    /// These are ids with limits of their own, and ids with files to which default limits apply.
    pub fn limited_ids(&self) -> Vec<Id> {
        self.tables.quotas.limited()
    }

    /// Returns a number that rises when limits change, and when an id gets its first file and with
    /// it default limits. Starts at 0 in each life of the MDT.
    pub fn quota_generation(&self) -> u64 {
        self.tables.quotas.generation()
    }

    /// Returns up to `limit` ids with files or with limits of their own, from `first` on. They
    /// ascend. With a pool: with own limits within it.
    pub fn quota_ids(&self, kind: Kind, pool: Option<PoolName>, first: u32, limit: usize) -> Vec<u32> {
        self.tables.quotas.ids(kind, pool, first, limit)
    }

    /// Returns the number of files of a user, group or project.
    pub fn files_used(&self, id: Id) -> u64 {
        self.tables.quotas.used(id)
    }

    /// Returns since when an id exceeds its soft limit of files; `None` if it does not.
    pub fn files_grace(&self, id: Id) -> Option<Time> {
        self.tables.quotas.record(id).files_since
    }

    /// Returns since when an id exceeds its soft limit of space, within a pool or all targets, as
    /// [`Namespace::set_space_since`] set it.
    pub fn space_since(&self, id: Id, pool: Option<PoolName>) -> Option<Time> {
        let quotas = &self.tables.quotas;
        pool.map_or_else(|| quotas.record(id).space_since, |pool| quotas.pools().since(id, pool))
    }

    /// Sets since when an id exceeds its soft limit of space, with the next batch.
    pub fn set_space_since(&mut self, id: Id, pool: Option<PoolName>, since: Option<Time>) {
        if self.tables.quotas.set_space_since(id, pool, since) {
            self.tables.add_bytes(RECORD_BYTES);
        }
    }
}
