//! Quotas (decision 047): the number of files of each user, group and project, and the limits of
//! space and files. Module `pool_quotas` has the limits within pools.
//!
//! The MDT enforces the limits of files itself ([`Quotas::check`]). The service divides the limits
//! of space among the OSTs.
//!
//! Invariants:
//! * Each inode is charged to its user, its group and its project, whatever its kind. An orphan
//!   counts until it is deleted.
//! * The numbers are derived where inodes are written ([`Quotas::inode`]), so no operation can
//!   forget to count. A batch holds the numbers after its changes, so a crash cannot separate the
//!   two.
//! * A soft limit may be exceeded for the grace time. The grace time begins with the change that
//!   exceeds the limit, and ends with the change that no longer does.
//! * The default limits of a kind apply to each id without limits of its own. They never apply to
//!   id 0: user 0 is the superuser, group 0 its group, project 0 has the files of no project.
//!
//! All numbers and limits are in memory. A creation costs three lookups in a map, and some more if
//! there are limits of files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sheen_wire::{
    self as wire, Errno, PoolName, Time,
    quota::{Change, Grace, Id, Kind, Limits, Owner, Setting},
};

use crate::{
    Store, StoreError, key,
    pool_quotas::PoolQuotas,
    record::{Inode, RawChange, Stored, decode, encode},
    table_scan::for_each_in,
};

/// Limits of an id, and since when it exceeds the soft ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct IdRecord {
    /// Its own limits. `None`: the default ones apply.
    pub own: Option<Setting>,
    pub files_since: Option<Time>,
    pub space_since: Option<Time>,
}

/// Default limits and grace times of users, groups or projects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct KindRecord {
    pub default: Setting,
    pub grace: Grace,
}

impl Stored for IdRecord {}
impl Stored for KindRecord {}

/// A user, group or project.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Number of files.
    used: u64,
    record: IdRecord,
    /// Whether it is in [`Quotas::changed`].
    is_listed: bool,
    /// Which of the two differs from the last sealed batch.
    is_used_changed: bool,
    is_record_changed: bool,
}

/// Numbers and limits of all users, groups and projects.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    ids: BTreeMap<Id, State>,
    /// In the order of [`Kind::ALL`].
    kinds: [KindRecord; Kind::ALL.len()],
    /// The ids to be written with the next batch.
    changed: Vec<Id>,
    are_kinds_changed: [bool; Kind::ALL.len()],
    pools: PoolQuotas,
    /// Number of the changes of [`Quotas::limited`] and of limits in this life of the MDT.
    generation: u64,
    /// Whether there is any limit of files.
    limits_files: bool,
}

impl Quotas {
    /// Reads the store. `is_counted`: it has the numbers of files. Otherwise counts all inodes.
    pub(crate) fn open<S: Store>(store: &S, is_counted: bool) -> Result<Quotas, StoreError> {
        let mut quotas = Quotas::default();
        for_each_in(store, key::USAGE, |key, value| {
            let id = key::quota_id(key).ok_or_else(|| malformed(key))?;
            quotas.ids.entry(id).or_default().used = decode(key, value)?;
            Ok(())
        })?;
        for_each_in(store, key::LIMITS, |key, value| {
            let id = key::quota_id(key).ok_or_else(|| malformed(key))?;
            quotas.ids.entry(id).or_default().record = decode(key, value)?;
            Ok(())
        })?;
        for_each_in(store, key::DEFAULTS, |key, value| {
            let kind = key::quota_kind(key).ok_or_else(|| malformed(key))?;
            quotas.kinds[kind as usize] = decode(key, value)?;
            Ok(())
        })?;
        quotas.pools = PoolQuotas::open(store)?;
        if !is_counted {
            quotas.count_all(store)?;
        }
        quotas.limits_files = quotas.has_limits_of_files();
        Ok(quotas)
    }

    /// Counts all inodes of the store. The next batch has the numbers. Skips an inode that does not
    /// decode, so that it cannot prevent a start. `sheen fsck` reports such an inode, and corrects
    /// the numbers.
    fn count_all<S: Store>(&mut self, store: &S) -> Result<(), StoreError> {
        // A salvaged store may have lost its format, and so have numbers that are outdated.
        for (id, state) in &mut self.ids {
            state.used = 0;
            state.is_used_changed = true;
            list(&mut self.changed, *id, state);
        }
        for_each_in(store, b'i', |key, value| {
            let Ok(inode) = decode::<Inode>(key, value) else { return Ok(()) };
            inode.owner().ids().into_iter().for_each(|id| self.add(id));
            Ok(())
        })
    }

    /// Counts a changed inode. `None`: it did not exist before, or does not exist any more. Returns
    /// whether its owner changed.
    pub(crate) fn inode(&mut self, old: Option<&Inode>, new: Option<&Inode>) -> bool {
        let (was, is) = (old.map(Inode::owner), new.map(Inode::owner));
        if was == is {
            return false;
        }
        // A creation, and a change of the owner or the project, set ctime.
        let now = new.or(old).map_or_else(Time::default, |inode| inode.ctime);
        let (was, is) = (was.map(Owner::ids), is.map(Owner::ids));
        for n in 0..Kind::ALL.len() {
            let (was, is) = (was.map(|ids| ids[n]), is.map(|ids| ids[n]));
            if was == is {
                continue;
            }
            if let Some(id) = was {
                self.subtract(id);
                self.watch(id, now);
            }
            if let Some(id) = is {
                self.add(id);
                self.watch(id, now);
            }
        }
        was.is_some() && is.is_some()
    }

    fn add(&mut self, id: Id) {
        let state = self.ids.entry(id).or_default();
        state.used += 1;
        state.is_used_changed = true;
        list(&mut self.changed, id, state);
        // An id gets the default limits with its first file.
        let is_first = state.used == 1;
        let is_new = is_first && state.record.own.is_none();
        if (is_new && !is_none(&self.setting_of(id, None).0)) || (is_first && self.pools.has_default(id)) {
            self.generation += 1;
        }
    }

    fn subtract(&mut self, id: Id) {
        let state = self.ids.entry(id).or_default();
        state.used = state.used.saturating_sub(1);
        state.is_used_changed = true;
        list(&mut self.changed, id, state);
    }

    /// Sets the number of files of an id, which was wrong.
    pub(crate) fn correct(&mut self, id: Id, used: u64, now: Time) {
        let state = self.ids.entry(id).or_default();
        state.used = used;
        state.is_used_changed = true;
        list(&mut self.changed, id, state);
        // Default limits apply to ids that have files.
        self.generation += 1;
        self.watch(id, now);
    }

    /// Begins or ends the grace time of an id's files.
    fn watch(&mut self, id: Id, now: Time) {
        if !self.limits_files {
            return;
        }
        let state = self.state(id);
        let (Setting { files: Limits { soft, .. }, .. }, _) = self.setting_of(id, state.record.own);
        let is_exceeded = soft > 0 && state.used > soft;
        let since = is_exceeded.then(|| state.record.files_since.unwrap_or(now));
        if since != state.record.files_since {
            self.edit(id, |record| record.files_since = since);
        }
    }

    /// Checks whether an owner may have one more file.
    ///
    /// # Errors
    /// EDQUOT: it would exceed a hard limit, or a soft one for longer than the grace time.
    pub(crate) fn check(&self, owner: Owner, now: Time) -> wire::Result<()> {
        if !self.limits_files || owner.is_exempt() {
            return Ok(());
        }
        let exceeds = |id: Id| {
            let State { used, record, .. } = self.state(id);
            let (Setting { files: Limits { soft, hard }, .. }, _) = self.setting_of(id, record.own);
            let secs = self.grace(id.kind).files;
            let is_over = || record.files_since.is_some_and(|since| is_grace_over(since, secs, now));
            (hard > 0 && used >= hard) || (soft > 0 && used >= soft && is_over())
        };
        if owner.ids().into_iter().any(exceeds) { Err(Errno::EDQUOT) } else { Ok(()) }
    }

    /// Changes limits or grace times.
    ///
    /// # Errors
    /// EINVAL: a soft limit above the hard one, id 0, an id that nobody has, or a limit of files
    /// within a pool. Nothing has changed then.
    pub(crate) fn change(&mut self, change: Change, now: Time) -> wire::Result<()> {
        change.id().map_or(Ok(()), check_id)?;
        match change.pool() {
            Some(pool) => self.pools.change(pool, change)?,
            None => self.change_all(change, now)?,
        }
        self.generation += 1;
        Ok(())
    }

    /// Changes the limits within all targets.
    fn change_all(&mut self, change: Change, now: Time) -> wire::Result<()> {
        match change {
            Change::Limits { id, space, files, .. } => {
                let (old, _) = self.setting(id);
                let own = Setting { space: space.apply(old.space)?, files: files.apply(old.files)? };
                self.edit(id, |record| record.own = Some(own));
                self.end_space_grace_without_limit(id);
            }
            Change::UseDefault { id, .. } | Change::Delete { id, .. } => {
                self.edit(id, |record| record.own = None);
                self.end_space_grace_without_limit(id);
            }
            Change::Default { kind, space, files, .. } => {
                let old = self.default_of(kind);
                let default = Setting { space: space.apply(old.space)?, files: files.apply(old.files)? };
                self.edit_kind(kind, |record| record.default = default);
                let exceeding =
                    |(id, state): (&Id, &State)| (id.kind == kind && state.record.space_since.is_some()).then_some(*id);
                let exceeding: Vec<Id> = self.ids.iter().filter_map(exceeding).collect();
                exceeding.into_iter().for_each(|id| self.end_space_grace_without_limit(id));
            }
            Change::Grace { kind, space, files, .. } => self.edit_kind(kind, |KindRecord { grace, .. }| {
                grace.space = space.unwrap_or(grace.space);
                grace.files = files.unwrap_or(grace.files);
            }),
        }
        let had_limits = self.limits_files;
        self.limits_files = self.has_limits_of_files();
        self.watch_all(now, had_limits || self.limits_files);
        Ok(())
    }

    /// Ends the grace time for space of an id that has no soft limit. A later limit begins a new
    /// one.
    fn end_space_grace_without_limit(&mut self, id: Id) {
        if self.setting(id).0.space.soft == 0 {
            self.edit(id, |record| record.space_since = None);
        }
    }

    /// Begins or ends the grace times of all ids after a change of limits.
    fn watch_all(&mut self, now: Time, has_limits: bool) {
        if !has_limits {
            return;
        }
        // Also after the last limit was removed.
        let limits_files = std::mem::replace(&mut self.limits_files, true);
        let ids: Vec<Id> = self.ids.keys().copied().collect();
        ids.into_iter().for_each(|id| self.watch(id, now));
        self.limits_files = limits_files;
    }

    fn has_limits_of_files(&self) -> bool {
        let limits = |setting: &Setting| !setting.files.is_none();
        let mut owns = self.ids.values().filter_map(|state| state.record.own.as_ref());
        self.kinds.iter().any(|kind| limits(&kind.default)) || owns.any(limits)
    }

    fn edit(&mut self, id: Id, change: impl FnOnce(&mut IdRecord)) {
        let state = self.ids.entry(id).or_default();
        let before = state.record;
        change(&mut state.record);
        state.is_record_changed |= state.record != before;
        list(&mut self.changed, id, state);
    }

    fn edit_kind(&mut self, kind: Kind, change: impl FnOnce(&mut KindRecord)) {
        change(&mut self.kinds[kind as usize]);
        self.are_kinds_changed[kind as usize] = true;
    }

    /// Returns the state of an id, possibly of one that has no files.
    fn state(&self, id: Id) -> State {
        self.ids.get(&id).copied().unwrap_or_default()
    }

    fn setting_of(&self, id: Id, own: Option<Setting>) -> (Setting, bool) {
        match own {
            Some(own) => (own, false),
            None if id.id == 0 => (Setting::default(), false),
            None => (self.default_of(id.kind), true),
        }
    }

    /// Returns the limits that apply to an id, and whether they are the default ones.
    pub(crate) fn setting(&self, id: Id) -> (Setting, bool) {
        self.setting_of(id, self.state(id).record.own)
    }

    pub(crate) fn default_of(&self, kind: Kind) -> Setting {
        self.kinds[kind as usize].default
    }

    pub(crate) fn grace(&self, kind: Kind) -> Grace {
        self.kinds[kind as usize].grace
    }

    pub(crate) fn pools(&self) -> &PoolQuotas {
        &self.pools
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of files of an id.
    pub(crate) fn used(&self, id: Id) -> u64 {
        self.state(id).used
    }

    /// Returns the limits that an id has of its own, and its times.
    pub(crate) fn record(&self, id: Id) -> IdRecord {
        self.state(id).record
    }

    /// Sets since when an id exceeds its soft limit of space, with the next batch. Returns whether
    /// that is a change.
    pub(crate) fn set_space_since(&mut self, id: Id, pool: Option<PoolName>, since: Option<Time>) -> bool {
        if let Some(pool) = pool {
            return self.pools.set_since(id, pool, since);
        }
        let changes = self.record(id).space_since != since;
        if changes {
            self.edit(id, |record| record.space_since = since);
        }
        changes
    }

    /// Returns the ids to which a limit applies, also one within a pool: own limits, or those with
    /// files to which default limits apply. They ascend.
    pub(crate) fn limited(&self) -> Vec<Id> {
        let is_limited = |(id, state): (&Id, &State)| {
            let (setting, is_default) = self.setting_of(*id, state.record.own);
            let is_limited = !is_none(&setting) && (!is_default || state.used > 0);
            (is_limited || (state.used > 0 && self.pools.has_default(*id))).then_some(*id)
        };
        let known = self.ids.iter().filter_map(is_limited);
        Vec::from_iter(known.chain(self.pools.limited()).collect::<BTreeSet<Id>>())
    }

    /// Returns up to `limit` ids with files or own limits, from `first` on. With a pool: own limits
    /// within it.
    pub(crate) fn ids(&self, kind: Kind, pool: Option<PoolName>, first: u32, limit: usize) -> Vec<u32> {
        let range = self.ids.range(Id { kind, id: first }..=Id { kind, id: u32::MAX });
        let has_own = |state: &State| pool.is_none() && state.record.own.is_some();
        let known = range.filter(|(_, state)| state.used > 0 || has_own(state)).map(|(id, _)| id.id).take(limit);
        let Some(pool) = pool else { return known.collect() };
        let within = self.pools.ids(kind, pool, first).take(limit);
        Vec::from_iter(known.chain(within).collect::<BTreeSet<u32>>().into_iter().take(limit))
    }

    /// Returns the records that have changed since the last call, for the batch that is about to be
    /// sealed.
    pub(crate) fn take_changes(&mut self) -> Result<Vec<RawChange>, StoreError> {
        let mut changes = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let Some(state) = self.ids.get_mut(&id) else { continue };
            state.is_listed = false;
            let has_record = state.record != IdRecord::default();
            if std::mem::take(&mut state.is_used_changed) {
                let value = (state.used > 0).then(|| encode(&state.used, Vec::new())).transpose()?;
                changes.push((key::quota(key::USAGE, id), value));
            }
            if std::mem::take(&mut state.is_record_changed) {
                let value = has_record.then(|| encode(&state.record, Vec::new())).transpose()?;
                changes.push((key::quota(key::LIMITS, id), value));
            }
            if state.used == 0 && !has_record {
                self.ids.remove(&id);
            }
        }
        for kind in Kind::ALL {
            if std::mem::take(&mut self.are_kinds_changed[kind as usize]) {
                let value = encode(&self.kinds[kind as usize], Vec::new())?;
                changes.push((key::defaults(kind), Some(value)));
            }
        }
        changes.extend(self.pools.take_changes()?);
        Ok(changes)
    }
}

/// Lists an id to be written with the next batch.
fn list(changed: &mut Vec<Id>, id: Id, state: &mut State) {
    if !std::mem::replace(&mut state.is_listed, true) {
        changed.push(id);
    }
}

fn is_none(setting: &Setting) -> bool {
    setting.space.is_none() && setting.files.is_none()
}

/// Returns EINVAL for an id that has no limits: 0, and the id that means "unchanged" in system
/// calls, which no file can have.
fn check_id(id: Id) -> wire::Result<()> {
    if id.id == 0 || id.id == u32::MAX { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Whether a grace time of that many seconds is over.
fn is_grace_over(since: Time, secs: u64, now: Time) -> bool {
    let end = i64::try_from(secs).ok().and_then(|secs| since.sec.checked_add(secs));
    end.is_some_and(|sec| now >= Time { sec, ..since })
}

fn malformed(key: &[u8]) -> StoreError {
    StoreError::Corrupt { key: format!("{key:02x?}"), why: "malformed key".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned<T: Stored + PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8]) {
        assert_eq!(encode(value, Vec::new()).unwrap(), bytes);
        assert_eq!(&decode::<T>(b"k", bytes).unwrap(), value);
    }

    /// The stored forms must not change.
    #[test]
    fn quota_records_are_pinned() {
        let limits = |soft, hard| Limits { soft, hard };
        let setting = Setting { space: limits(1, 2), files: limits(3, 300) };
        let files_since = Some(Time { sec: 5, nsec: 6 });
        pinned(&300_u64, &[1, 0xac, 2]);
        pinned(&IdRecord::default(), &[1, 0, 0, 0]);
        pinned(
            &IdRecord { own: Some(setting), files_since, space_since: None },
            &[1, 1, 1, 2, 3, 0xac, 2, 1, 10, 6, 0],
        );
        let grace = Grace { space: wire::quota::GRACE_SECS, files: 7 };
        pinned(&KindRecord { default: setting, grace }, &[1, 1, 2, 3, 0xac, 2, 0x80, 0xf5, 0x24, 7]);
    }

    /// The keys must not change.
    #[test]
    fn quota_keys_are_pinned() {
        for (n, kind) in Kind::ALL.into_iter().enumerate() {
            let id = Id { kind, id: 0x0102_0304 };
            let key = key::quota(key::USAGE, id);
            assert_eq!(key, [b'n', n as u8, 1, 2, 3, 4]);
            assert_eq!((key::quota_id(&key), key::quota_id(&key[..5])), (Some(id), None));
            assert_eq!(key::defaults(kind), [b'g', n as u8]);
            assert_eq!(key::quota_kind(&[b'g', n as u8]), Some(kind));
        }
        assert_eq!(key::quota(key::LIMITS, Id { kind: Kind::Group, id: 0 }), [b'd', 1, 0, 0, 0, 0]);
        assert_eq!((key::quota_id(&[b'n', 3, 0, 0, 0, 0]), key::quota_kind(b"g")), (None, None));
    }

    #[test]
    fn grace_time_ends_after_its_seconds() {
        let at = |sec, nsec| Time { sec, nsec };
        let is_over = |secs, now| is_grace_over(at(10, 5), secs, now);
        assert!(is_over(0, at(10, 5)) && !is_over(1, at(11, 4)) && is_over(1, at(11, 5)));
        assert!(!is_over(u64::MAX, at(i64::MAX, 0)) && !is_over(i64::MAX as u64, at(i64::MAX, 0)));
    }
}
