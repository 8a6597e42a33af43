//! Limits of space of users, groups and projects within pools of OSTs, beside those within all
//! targets (module `quotas`).
//!
//! The namespace does not know the pools: it stores limits by their names, and the service applies
//! them to the OSTs that a pool has at the moment. So the limits of a deleted pool apply to no
//! OST, and apply again to a later pool of this name.
//!
//! Invariants:
//! * A pool has no limits of files.
//! * The default limits of a pool apply to each id without limits of its own in that pool, but
//!   never to id 0.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sheen_wire::{
    self as wire, Errno, PoolName, Time,
    quota::{Change, GRACE_SECS, Id, Kind, Limits, NewLimits},
};

use crate::{
    Store, StoreError, key,
    record::{RawChange, Stored, decode, encode},
    table_scan::for_each_in,
};

/// Limits of an id within a pool, and since when it exceeds the soft one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PoolIdRecord {
    /// Its own limits. `None`: the default ones apply.
    pub own: Option<Limits>,
    pub since: Option<Time>,
}

/// Default limits and grace time of users, groups or projects within a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PoolKindRecord {
    pub default: Limits,
    /// In seconds.
    pub grace: u64,
}

impl Default for PoolKindRecord {
    fn default() -> PoolKindRecord {
        PoolKindRecord { default: Limits::default(), grace: GRACE_SECS }
    }
}

impl Stored for PoolIdRecord {}
impl Stored for PoolKindRecord {}

/// The limits within all pools. Records that equal the default are not stored.
#[derive(Debug, Default)]
pub(crate) struct PoolQuotas {
    ids: BTreeMap<(Id, PoolName), PoolIdRecord>,
    kinds: BTreeMap<(Kind, PoolName), PoolKindRecord>,
    /// To be written with the next batch.
    changed_ids: BTreeSet<(Id, PoolName)>,
    changed_kinds: BTreeSet<(Kind, PoolName)>,
}

impl PoolQuotas {
    /// Reads the store.
    pub fn open<S: Store>(store: &S) -> Result<PoolQuotas, StoreError> {
        let mut pools = PoolQuotas::default();
        for_each_in(store, key::POOL_LIMITS, |key, value| {
            pools.ids.insert(key::pool_quota_id(key).ok_or_else(|| malformed(key))?, decode(key, value)?);
            Ok(())
        })?;
        for_each_in(store, key::POOL_DEFAULTS, |key, value| {
            pools.kinds.insert(key::pool_quota_kind(key).ok_or_else(|| malformed(key))?, decode(key, value)?);
            Ok(())
        })?;
        Ok(pools)
    }

    /// Changes limits or grace times within a pool. The caller has checked the id.
    ///
    /// # Errors
    /// EINVAL: a soft limit above the hard one, or a limit or grace time of files. Nothing has
    /// changed then.
    pub fn change(&mut self, pool: PoolName, change: Change) -> wire::Result<()> {
        match change {
            Change::Limits { id, space, files, .. } => {
                without_files(files == NewLimits::default())?;
                let own = space.apply(self.limits(id, pool).0)?;
                self.edit(id, pool, |record| record.own = Some(own));
                self.end_grace_without_limit(id, pool);
            }
            Change::UseDefault { id, .. } | Change::Delete { id, .. } => {
                self.edit(id, pool, |record| record.own = None);
                self.end_grace_without_limit(id, pool);
            }
            Change::Default { kind, space, files, .. } => {
                without_files(files == NewLimits::default())?;
                let default = space.apply(self.default_of(kind, pool))?;
                self.edit_kind(kind, pool, |record| record.default = default);
                let ids = self.ids.keys().filter(|(id, of)| id.kind == kind && *of == pool);
                for (id, _) in ids.copied().collect::<Vec<_>>() {
                    self.end_grace_without_limit(id, pool);
                }
            }
            Change::Grace { kind, space, files, .. } => {
                without_files(files.is_none())?;
                self.edit_kind(kind, pool, |record| record.grace = space.unwrap_or(record.grace));
            }
        }
        Ok(())
    }

    /// Ends the grace time of an id that has no soft limit. A later limit begins a new one.
    fn end_grace_without_limit(&mut self, id: Id, pool: PoolName) {
        if self.limits(id, pool).0.soft == 0 {
            self.set_since(id, pool, None);
        }
    }

    fn edit(&mut self, id: Id, pool: PoolName, change: impl FnOnce(&mut PoolIdRecord)) {
        change(self.ids.entry((id, pool)).or_default());
        self.changed_ids.insert((id, pool));
    }

    fn edit_kind(&mut self, kind: Kind, pool: PoolName, change: impl FnOnce(&mut PoolKindRecord)) {
        change(self.kinds.entry((kind, pool)).or_default());
        self.changed_kinds.insert((kind, pool));
    }

    fn record(&self, id: Id, pool: PoolName) -> PoolIdRecord {
        self.ids.get(&(id, pool)).copied().unwrap_or_default()
    }

    /// Returns the limits that apply to an id within a pool, and whether they are the default ones.
    pub fn limits(&self, id: Id, pool: PoolName) -> (Limits, bool) {
        match self.record(id, pool).own {
            Some(own) => (own, false),
            None if id.id == 0 => (Limits::default(), false),
            None => (self.default_of(id.kind, pool), true),
        }
    }

    pub fn default_of(&self, kind: Kind, pool: PoolName) -> Limits {
        self.kinds.get(&(kind, pool)).copied().unwrap_or_default().default
    }

    /// Returns the grace time in seconds.
    pub fn grace(&self, kind: Kind, pool: PoolName) -> u64 {
        self.kinds.get(&(kind, pool)).copied().unwrap_or_default().grace
    }

    /// Returns since when an id exceeds its soft limit within a pool.
    pub fn since(&self, id: Id, pool: PoolName) -> Option<Time> {
        self.record(id, pool).since
    }

    /// Sets since when an id exceeds its soft limit within a pool. Returns whether that is a
    /// change.
    pub fn set_since(&mut self, id: Id, pool: PoolName, since: Option<Time>) -> bool {
        let changes = self.since(id, pool) != since;
        if changes {
            self.edit(id, pool, |record| record.since = since);
        }
        changes
    }

    /// Returns the pools whose own or default limits apply to an id.
    pub fn of(&self, id: Id) -> BTreeSet<PoolName> {
        let own = self.own_of(id);
        let default = self.kinds.keys().filter(|(kind, _)| *kind == id.kind).map(|(_, pool)| *pool);
        own.chain(default).filter(|pool| !self.limits(id, *pool).0.is_none()).collect()
    }

    fn own_of(&self, id: Id) -> impl Iterator<Item = PoolName> {
        let all = self.ids.range((id, PoolName::FIRST)..);
        all.take_while(move |((of, _), _)| *of == id).map(|((_, pool), _)| *pool)
    }

    /// Whether default limits within a pool apply to an id.
    pub fn has_default(&self, id: Id) -> bool {
        let is_default = |pool| {
            let (limits, is_default) = self.limits(id, pool);
            is_default && !limits.is_none()
        };
        self.kinds.keys().any(|(kind, pool)| *kind == id.kind && is_default(*pool))
    }

    /// Returns the ids with own limits within a pool that limit something.
    pub fn limited(&self) -> impl Iterator<Item = Id> {
        let limited = self.ids.iter().filter(|(_, record)| record.own.is_some_and(|own| !own.is_none()));
        limited.map(|((id, _), _)| *id)
    }

    /// Returns the ids with own limits within a pool, from `first` on. They ascend.
    pub fn ids(&self, kind: Kind, pool: PoolName, first: u32) -> impl Iterator<Item = u32> {
        let all = self.ids.range((Id { kind, id: first }, PoolName::FIRST)..);
        let of_kind = all.take_while(move |((id, _), _)| id.kind == kind);
        let own = of_kind.filter(move |((_, of), record)| *of == pool && record.own.is_some());
        own.map(|((id, _), _)| id.id)
    }

    /// Returns the records that have changed since the last call.
    pub fn take_changes(&mut self) -> Result<Vec<RawChange>, StoreError> {
        let mut changes = Vec::new();
        for (id, pool) in std::mem::take(&mut self.changed_ids) {
            let record = self.record(id, pool);
            let is_default = record == PoolIdRecord::default();
            if is_default {
                self.ids.remove(&(id, pool));
            }
            let value = (!is_default).then(|| encode(&record, Vec::new())).transpose()?;
            changes.push((key::pool_quota(id, pool), value));
        }
        for (kind, pool) in std::mem::take(&mut self.changed_kinds) {
            let record = self.kinds.get(&(kind, pool)).copied().unwrap_or_default();
            let is_default = record == PoolKindRecord::default();
            if is_default {
                self.kinds.remove(&(kind, pool));
            }
            let value = (!is_default).then(|| encode(&record, Vec::new())).transpose()?;
            changes.push((key::pool_defaults(kind, pool), value));
        }
        Ok(changes)
    }
}

/// Returns EINVAL for a change of files within a pool.
fn without_files(is_so: bool) -> wire::Result<()> {
    if is_so { Ok(()) } else { Err(Errno::EINVAL) }
}

fn malformed(key: &[u8]) -> StoreError {
    StoreError::Corrupt { key: format!("{key:02x?}"), why: "malformed key".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = Id { kind: Kind::User, id: 0x0102_0304 };

    fn pool(name: &str) -> PoolName {
        PoolName::new(name).unwrap()
    }

    fn hard(limit: u64) -> NewLimits {
        NewLimits { soft: None, hard: Some(limit) }
    }

    fn limit(pools: &mut PoolQuotas, id: Id, name: &str, limit: u64) {
        let change = Change::Limits { id, pool: None, space: hard(limit), files: NewLimits::default() };
        pools.change(pool(name), change).unwrap();
    }

    fn default(pools: &mut PoolQuotas, name: &str, limit: u64) {
        let change = Change::Default { kind: Kind::User, pool: None, space: hard(limit), files: NewLimits::default() };
        pools.change(pool(name), change).unwrap();
    }

    /// The stored forms must not change.
    #[test]
    fn pool_quota_records_are_pinned() {
        fn pinned<T: Stored + PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8]) {
            assert_eq!(encode(value, Vec::new()).unwrap(), bytes);
            assert_eq!(&decode::<T>(b"k", bytes).unwrap(), value);
        }
        let limits = Limits { soft: 3, hard: 300 };
        let since = Some(Time { sec: 5, nsec: 6 });
        pinned(&PoolIdRecord::default(), &[1, 0, 0]);
        pinned(&PoolIdRecord { own: Some(limits), since }, &[1, 1, 3, 0xac, 2, 1, 10, 6]);
        pinned(&PoolKindRecord { default: limits, grace: 7 }, &[1, 3, 0xac, 2, 7]);
    }

    /// The keys must not change.
    #[test]
    fn pool_quota_keys_are_pinned() {
        let key = key::pool_quota(ID, pool("ssd"));
        assert_eq!(key, [b'b', 0, 1, 2, 3, 4, b's', b's', b'd']);
        assert_eq!((key::pool_quota_id(&key), key::pool_quota_id(&key[..6])), (Some((ID, pool("ssd"))), None));
        let key = key::pool_defaults(Kind::Project, pool("a"));
        assert_eq!(key, [b'm', 2, b'a']);
        assert_eq!(key::pool_quota_kind(&key), Some((Kind::Project, pool("a"))));
        assert_eq!((key::pool_quota_kind(b"m\x02"), key::pool_quota_kind(b"m\x03a")), (None, None));
    }

    #[test]
    fn default_limits_of_a_pool_apply_to_ids_without_own_ones() {
        let mut pools = PoolQuotas::default();
        assert!(pools.of(ID).is_empty() && !pools.has_default(ID));
        default(&mut pools, "a", 5);
        let root = Id { id: 0, ..ID };
        assert_eq!((pools.limits(ID, pool("a")).1, pools.limits(root, pool("a")).1), (true, false));
        assert!(pools.has_default(ID) && !pools.has_default(root) && pools.of(root).is_empty());
        assert!(!pools.has_default(Id { kind: Kind::Group, ..ID }));
        limit(&mut pools, ID, "b", 7);
        assert_eq!(Vec::from_iter(pools.of(ID)), [pool("a"), pool("b")]);
        limit(&mut pools, ID, "a", 0);
        assert_eq!(Vec::from_iter(pools.of(ID)), [pool("b")], "own limits that limit nothing");
        assert_eq!((Vec::from_iter(pools.limited()), pools.has_default(ID)), (vec![ID], false));
        assert_eq!(Vec::from_iter(pools.ids(Kind::User, pool("a"), 0)), [ID.id]);
        assert_eq!(pools.ids(Kind::User, pool("a"), ID.id + 1).count(), 0);
        pools.change(pool("a"), Change::Delete { id: ID, pool: None }).unwrap();
        assert_eq!(pools.limits(ID, pool("a")), (Limits { soft: 0, hard: 5 }, true));
    }

    #[test]
    fn limits_of_files_within_a_pool_are_refused() {
        let mut pools = PoolQuotas::default();
        let (space, files) = (NewLimits::default(), hard(1));
        for change in [
            Change::Limits { id: ID, pool: None, space, files },
            Change::Default { kind: Kind::User, pool: None, space, files },
            Change::Grace { kind: Kind::User, pool: None, space: None, files: Some(1) },
        ] {
            assert_eq!(pools.change(pool("a"), change), Err(Errno::EINVAL));
        }
        assert!(pools.take_changes().unwrap().is_empty());
    }

    #[test]
    fn grace_time_within_a_pool_ends_with_its_soft_limit() {
        let soft = |soft| NewLimits { soft: Some(soft), hard: None };
        let files = NewLimits::default();
        let (a, mut pools) = (pool("a"), PoolQuotas::default());
        let own = |soft_limit| Change::Limits { id: ID, pool: None, space: soft(soft_limit), files };
        let default = |soft_limit| Change::Default { kind: Kind::User, pool: None, space: soft(soft_limit), files };
        let steps: [[Change; 2]; 3] =
            [[own(5), own(0)], [own(5), Change::Delete { id: ID, pool: None }], [default(5), default(0)]];
        for [set, removed] in steps {
            pools.change(a, set).unwrap();
            assert!(pools.set_since(ID, a, Some(Time::default())));
            pools.change(a, removed).unwrap();
            assert_eq!(pools.since(ID, a), None, "{removed:?}");
            pools.change(a, Change::UseDefault { id: ID, pool: None }).unwrap();
        }
    }

    #[test]
    fn records_without_content_are_removed_from_the_store() {
        let mut pools = PoolQuotas::default();
        limit(&mut pools, ID, "a", 7);
        default(&mut pools, "a", 5);
        assert!(pools.set_since(ID, pool("a"), Some(Time::default())));
        assert!(!pools.set_since(ID, pool("a"), Some(Time::default())));
        let written = pools.take_changes().unwrap();
        assert!(written.len() == 2 && written.iter().all(|(_, value)| value.is_some()), "{written:?}");
        pools.change(pool("a"), Change::UseDefault { id: ID, pool: None }).unwrap();
        assert_eq!(pools.since(ID, pool("a")), None, "there is no soft limit");
        default(&mut pools, "a", 0);
        let removed: [RawChange; 2] =
            [(key::pool_quota(ID, pool("a")), None), (key::pool_defaults(Kind::User, pool("a")), None)];
        assert_eq!(pools.take_changes().unwrap(), removed);
        assert!(pools.ids.is_empty() && pools.kinds.is_empty());
    }
}
