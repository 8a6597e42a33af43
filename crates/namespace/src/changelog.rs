//! The changelog: records of changes, for programs that follow a file system (Lustre's
//! changelogs). Such a program registers as a user. Without users nothing is recorded.
//!
//! Operations add records as they change something ([`crate::Namespace::record`]). A batch holds
//! the records of its changes, so a record is exactly as durable as its change. A replayed change
//! adds its record again, because both were lost. A repeated request adds none, because it changes
//! nothing.
//!
//! Invariants:
//! * Records have rising numbers without gaps. The last number is in the same batch as its record.
//!   So a restart continues after the last record that a reader may have seen.
//! * Readers get durable records only ([`Changelog::range`]).
//! * A user holds the records after its clear point. The others are deleted, a bounded number with
//!   each batch. The service reads which ones without a lock ([`UnneededRecords`]).
//! * A user that holds too many records, or some for too long, is deregistered, so that the disk
//!   does not fill ([`crate::ChangelogGc`]).
//! * Opens and reads of attributes need no room in the store. So their records are left out if very
//!   many records wait to be stored ([`Changelog::takes_accesses`]).
//!
//! The store has the records in chunks of up to [`CHUNK_RECORDS`]. The key of a chunk is the number
//! of its last record: so the first key from a number on has that record.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheen_wire::{
    Cred, Fid, Time,
    changelog::{Kind, Mask, Record, Source},
};

use crate::{
    ChangelogGc, Store, StoreError,
    interface::Cx,
    key,
    record::{Stored, decode, encode},
    refused_opens::RefusedOpens,
    table_scan::for_each_in,
    tables::{Tables, read},
};

/// Records of one chunk.
const CHUNK_RECORDS: usize = 256;
/// Chunks that one batch deletes at least.
const DELETED_CHUNKS: usize = 64;
/// Chunks that are read at once.
const READ_CHUNKS: usize = 4;
/// Numbers that are skipped after a salvage that has not found the state.
const NUMBERS_GAP: u64 = 1 << 32;
/// Ids of users that are skipped then.
const USERS_GAP: u32 = 1 << 16;
/// Records that are not stored, above which those of accesses are left out: some 40 MB. Only a disk
/// that hangs or fails leaves so many.
const PENDING_MAX: usize = 1 << 17;
/// Default of the records that a user may hold: some 400 MB.
const HELD_RECORDS_MAX: u64 = 4 << 20;

/// A user of the changelog.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangelogUser {
    /// Its number, which is not used again.
    pub id: u32,
    /// Its name, or empty.
    pub name: String,
    /// The kinds of records that it wants; `None`: the default ones.
    pub mask: Option<Mask>,
    /// It needs no records up to this number.
    pub cleared: u64,
    /// When it was registered, or last cleared records.
    pub active: Time,
    /// A number that the caller chose at the registration.
    pub nonce: u64,
}

impl ChangelogUser {
    /// Returns its id as Lustre shows it: `cl1`, or `cl1-NAME`.
    pub fn label(&self) -> String {
        let separator = if self.name.is_empty() { "" } else { "-" };
        format!("cl{}{separator}{}", self.id, self.name)
    }
}

/// A user that the changelog has deregistered by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Laggard {
    /// The user.
    pub user: ChangelogUser,
    /// Number of records that it held.
    pub records: u64,
    /// Seconds since it was registered, or last cleared records.
    pub idle_secs: u64,
}

impl Stored for Vec<Record> {}
impl Stored for State {}

/// The stored state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Number of the last record.
    pub last: u64,
    /// Number of the last user.
    pub last_user: u32,
    /// Records that a user may hold.
    pub held_max: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    pub users: Vec<ChangelogUser>,
}

/// A change that an operation has made.
pub(crate) struct Changed<'a> {
    pub kind: Kind,
    pub flags: u16,
    pub target: Fid,
    /// Directory and name.
    pub entry: Option<(Fid, &'a [u8])>,
    /// Of a rename: the file, its former directory and name.
    pub source: Option<(Fid, Fid, &'a [u8])>,
    /// Name of an extended attribute.
    pub xattr: &'a [u8],
}

impl<'a> Changed<'a> {
    /// A change of a file.
    pub(crate) fn file(kind: Kind, target: Fid) -> Changed<'a> {
        Changed { kind, flags: 0, target, entry: None, source: None, xattr: &[] }
    }

    /// A change of a name.
    pub(crate) fn entry(kind: Kind, target: Fid, parent: Fid, name: &'a [u8]) -> Changed<'a> {
        Changed { entry: Some((parent, name)), ..Changed::file(kind, target) }
    }
}

/// The changelog of an MDT.
#[derive(Debug)]
pub(crate) struct Changelog {
    pub(crate) state: State,
    /// The kinds that are recorded: none without users.
    pub(crate) mask: Mask,
    /// The kinds for users that have not chosen any.
    pub(crate) default_mask: Mask,
    /// Limits for idle users.
    pub(crate) gc: ChangelogGc,
    /// The limits differ from those in the last sealed batch.
    pub(crate) is_gc_changed: bool,
    /// Time of the last check for idle users.
    pub(crate) gc_checked: Option<Time>,
    /// Users that were deregistered because they exceeded a limit.
    pub(crate) laggards: Vec<Laggard>,
    /// Refused opens that were recorded lately.
    pub(crate) refused: RefusedOpens,
    /// Records of accesses that were left out since the service last asked.
    pub(crate) left_out: u64,
    /// Time of the last record.
    newest: Option<Time>,
    /// Records that are in no sealed batch.
    pending: Vec<Record>,
    /// Users whose deregistration is not durable, and whether it is in the sealed batch.
    leaving: Vec<(u32, bool)>,
    /// The state differs from the one in the last sealed batch.
    is_changed: bool,
    /// Chunks may exist that no user needs.
    has_unneeded: bool,
    /// Last record and last user of the last sealed batch.
    sealed: (u64, u32),
    /// Those that are durable.
    durable: (u64, u32),
}

impl Changelog {
    /// Reads the state. A salvaged store may have lost it: then the users are lost, too, and
    /// numbers continue far above those of the records that were found.
    pub(crate) fn open<S: Store>(store: &S) -> Result<Changelog, StoreError> {
        let (from, to) = key::table(key::CHANGELOG);
        let has_unneeded = !store.range(&from, &to, 1)?.is_empty();
        let state = match read::<State>(store, key::CHANGELOG_STATE)? {
            Some(state) => state,
            None => {
                let mut found = 0;
                for_each_in(store, key::CHANGELOG, |key, _| {
                    found = found.max(key::changelog_last(key).unwrap_or_default());
                    Ok(())
                })?;
                let (last, last_user) = if found == 0 { (0, 0) } else { (found + NUMBERS_GAP, USERS_GAP) };
                State { last, last_user, held_max: HELD_RECORDS_MAX, ..State::default() }
            }
        };
        let durable = (state.last, state.last_user);
        let mut changelog = Changelog {
            state,
            mask: Mask::NONE,
            default_mask: Mask::DEFAULT,
            gc: read(store, key::CHANGELOG_GC)?.unwrap_or_default(),
            is_gc_changed: false,
            gc_checked: None,
            laggards: Vec::new(),
            refused: RefusedOpens::default(),
            left_out: 0,
            newest: None,
            pending: Vec::new(),
            leaving: Vec::new(),
            is_changed: false,
            has_unneeded,
            sealed: durable,
            durable,
        };
        changelog.choose_mask();
        Ok(changelog)
    }

    /// Determines which kinds are recorded. To be called when users or the default change.
    pub(crate) fn choose_mask(&mut self) {
        let masks = self.state.users.iter().map(|user| user.mask.unwrap_or(self.default_mask));
        self.mask = masks.fold(Mask::NONE, Mask::union);
    }

    /// Records that users or their clear points have changed.
    pub(crate) fn changed(&mut self) {
        (self.is_changed, self.has_unneeded) = (true, true);
        self.choose_mask();
    }

    /// Adds a record. Returns its approximate size in bytes.
    pub(crate) fn add(&mut self, cx: &Cx, cred: &Cred, changed: &Changed<'_>) -> usize {
        self.state.last += 1;
        let (parent, name) = changed.entry.unwrap_or((Fid::ZERO, &[]));
        let source = changed
            .source
            .map(|(fid, parent, name)| Box::new(Source { fid, parent, name: Bytes::copy_from_slice(name) }));
        let record = Record {
            index: self.state.last,
            kind: changed.kind,
            flags: changed.flags,
            time: cx.now,
            target: changed.target,
            parent,
            name: Bytes::copy_from_slice(name),
            uid: cred.uid,
            gid: cred.gid,
            nid: cx.env.nid(),
            job: Bytes::copy_from_slice(cx.env.job().as_bytes()),
            xattr: Bytes::copy_from_slice(changed.xattr),
            source,
        };
        let bytes = record.bytes();
        self.newest = Some(record.time);
        self.pending.push(record);
        bytes
    }

    /// Whether a record of an access can be added. Otherwise it is left out. `is_short`: the disk
    /// is short of space.
    pub(crate) fn takes_accesses(&mut self, is_short: bool) -> bool {
        let takes = self.pending.len() < PENDING_MAX && !is_short;
        self.left_out += u64::from(!takes);
        takes
    }

    /// Returns a mark for [`Changelog::undo`].
    pub(crate) fn mark(&self) -> usize {
        self.pending.len()
    }

    /// Removes the records that an operation has added since the mark, because it failed. The
    /// record of a refused open stays: it is the only one of its operation.
    pub(crate) fn undo(&mut self, mark: usize) {
        let is_refused_open = self.pending.get(mark).is_some_and(|record| record.kind == Kind::Nopen);
        let mark = mark + usize::from(is_refused_open);
        let added = self.pending.len().saturating_sub(mark);
        self.pending.truncate(mark);
        self.state.last -= added as u64;
    }

    /// Writes new records and the state into the batch that is about to be sealed, and deletes a
    /// part of the records that no user needs.
    pub(crate) fn flush<S: Store>(&mut self, tables: &mut Tables<S>) -> Result<(), StoreError> {
        self.note_first_records();
        self.deregister_laggards();
        self.is_changed |= !self.pending.is_empty();
        if self.state.users.is_empty() {
            self.pending.clear();
        }
        while !self.pending.is_empty() {
            let chunk: Vec<Record> = self.pending.drain(..CHUNK_RECORDS.min(self.pending.len())).collect();
            let Some(last) = chunk.last() else { break };
            let key = key::changelog(last.index);
            let value = encode(&chunk, Vec::new())?;
            self.state.bytes += value.len() as u64;
            tables.set_raw(key, Some(value));
        }
        if std::mem::take(&mut self.is_changed) {
            tables.set_raw(key::CHANGELOG_STATE.to_vec(), Some(encode(&self.state, Vec::new())?));
            self.sealed = (self.state.last, self.state.last_user);
            self.leaving.iter_mut().for_each(|(_, is_sealed)| *is_sealed = true);
        }
        if std::mem::take(&mut self.is_gc_changed) {
            tables.set_raw(key::CHANGELOG_GC.to_vec(), Some(encode(&self.gc, Vec::new())?));
        }
        Ok(())
    }

    /// Returns which records no user needs, if there may be any. The next batch can delete more
    /// chunks than it adds.
    pub(crate) fn unneeded(&self) -> Option<UnneededRecords> {
        let limit = DELETED_CHUNKS.max(2 * self.pending.len().div_ceil(CHUNK_RECORDS));
        self.has_unneeded.then(|| UnneededRecords { last: self.cleared(), limit })
    }

    /// Deletes chunks that no user needs. No other batch may have been sealed since
    /// [`Changelog::unneeded`].
    pub(crate) fn delete<S: Store>(&mut self, unneeded: UnneededChunks, tables: &mut Tables<S>) {
        let UnneededChunks { last, chunks, has_more } = unneeded;
        // Meanwhile users may have cleared further records.
        self.has_unneeded = has_more || last != self.cleared();
        self.is_changed |= !chunks.is_empty();
        for (key, bytes) in chunks {
            self.state.bytes = self.state.bytes.saturating_sub(bytes);
            tables.set_raw(key, None);
        }
    }

    /// Notes that users who had cleared all records are not idle before the first new one.
    fn note_first_records(&mut self) {
        let Some(first) = self.pending.first() else { return };
        for user in self.state.users.iter_mut().filter(|user| user.cleared + 1 >= first.index) {
            user.active = user.active.max(first.time);
        }
    }

    /// Deregisters the users that exceed a limit. Only new records make users idle.
    fn deregister_laggards(&mut self) {
        if !self.gc.is_on {
            return;
        }
        let (last, held_max, newest) = (self.state.last, self.state.held_max, self.newest);
        let checks_time = newest.is_some_and(|now| self.gc.is_due(self.gc_checked, now));
        if checks_time {
            self.gc_checked = newest;
        }
        let idle_max = if checks_time { self.gc.idle_secs } else { u64::MAX };
        let held = |user: &ChangelogUser| last.saturating_sub(user.cleared);
        let idle_secs = |user: &ChangelogUser| {
            let now = newest.map_or(user.active.sec, |now| now.sec);
            u64::try_from(now.saturating_sub(user.active.sec)).unwrap_or(0)
        };
        let is_laggard = |user: &ChangelogUser| held(user) > held_max || held(user) > 0 && idle_secs(user) > idle_max;
        if self.state.users.iter().any(is_laggard) {
            let all = std::mem::take(&mut self.state.users).into_iter();
            let (laggards, users): (Vec<_>, Vec<_>) = all.partition(is_laggard);
            self.state.users = users;
            let laggard = |user: ChangelogUser| Laggard { records: held(&user), idle_secs: idle_secs(&user), user };
            self.laggards.extend(laggards.into_iter().map(laggard));
            self.changed();
        }
    }

    /// Whether records wait to be deleted with the next batches.
    pub(crate) fn has_unneeded(&self) -> bool {
        self.has_unneeded
    }

    /// Records that the sealed batch is durable.
    pub(crate) fn committed(&mut self) {
        self.durable = self.sealed;
        self.leaving.retain(|(_, is_sealed)| !is_sealed);
    }

    /// Returns the number up to which no user needs records.
    pub(crate) fn cleared(&self) -> u64 {
        self.state.users.iter().map(|user| user.cleared).min().unwrap_or(self.state.last)
    }

    /// Returns the numbers of the first record that a user needs, and of the last durable one.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.cleared().saturating_add(1), self.durable.0)
    }

    /// Removes a user with the next batch. Returns false if there is no such user.
    pub(crate) fn deregister(&mut self, id: u32) -> bool {
        let Some(at) = self.state.users.iter().position(|user| user.id == id) else { return false };
        self.state.users.remove(at);
        self.leaving.push((id, false));
        true
    }

    /// Returns the users whose deregistration is not durable.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = u32> {
        self.leaving.iter().map(|(id, _)| *id)
    }

    /// Whether the registration of a user is durable.
    pub(crate) fn is_durable(&self, user: &ChangelogUser) -> bool {
        user.id <= self.durable.1
    }
}

/// The records that no user needs. Their chunks are read from the store without the namespace, so
/// that requests need not wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnneededRecords {
    /// Number of the last one.
    last: u64,
    /// Maximum number of chunks that are deleted at once.
    limit: usize,
}

/// The chunks of records that no user needs, for [`crate::Namespace::delete_unneeded`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnneededChunks {
    /// Number of the last record that no user needed.
    last: u64,
    /// The key and the size of each.
    chunks: Vec<(Vec<u8>, u64)>,
    /// There are more than those.
    has_more: bool,
}

impl UnneededRecords {
    /// Reads which chunks the store has.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read(&self, store: &impl Store) -> Result<UnneededChunks, StoreError> {
        let (from, _) = key::table(key::CHANGELOG);
        let to = key::changelog(self.last.saturating_add(1));
        let found = store.range(&from, &to, self.limit.saturating_add(1))?;
        let has_more = found.len() > self.limit;
        let chunks = found.into_iter().take(self.limit).map(|(key, value)| (key, value.len() as u64)).collect();
        Ok(UnneededChunks { last: self.last, chunks, has_more })
    }
}

/// Returns the stored records with numbers from `first` to `last`, of at most `bytes_max` in total.
/// Numbers of deleted records are skipped. Reads the store alone, so the caller needs no lock.
///
/// # Errors
/// The store cannot be read.
pub fn read_changelog(store: &impl Store, first: u64, last: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
    let (_, to) = key::table(key::CHANGELOG);
    let (mut records, mut bytes, mut from) = (Vec::new(), 0, first);
    while from <= last {
        let chunks = store.range(&key::changelog(from), &to, READ_CHUNKS)?;
        let is_end = chunks.len() < READ_CHUNKS;
        for (key, value) in chunks {
            for record in decode::<Vec<Record>>(&key, &value)? {
                if record.index < from {
                    continue;
                }
                bytes += record.bytes();
                if record.index > last || bytes > bytes_max {
                    return Ok(records);
                }
                from = record.index.saturating_add(1);
                records.push(record);
            }
            // Also past a chunk without such records, which a damaged store may have.
            from = from.max(key::changelog_last(&key).unwrap_or(u64::MAX).saturating_add(1));
        }
        if is_end {
            break;
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemStore;

    fn hex<T: Stored>(value: &T) -> String {
        encode(value, Vec::new()).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    const TIME: Time = Time { sec: 3, nsec: 4 };

    fn record() -> Record {
        let fid = |oid| Fid::new(2, oid);
        let source = Some(Box::new(Source { fid: fid(8), parent: fid(9), name: Bytes::from_static(b"s") }));
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let (name, nid, job, xattr) = (text("n"), text("i"), text("j"), text("x"));
        let (target, parent) = (fid(6), fid(7));
        Record {
            index: 1,
            kind: Kind::Renme,
            flags: 1,
            time: TIME,
            target,
            parent,
            name,
            uid: 5,
            gid: 6,
            nid,
            job,
            xattr,
            source,
        }
    }

    /// The stored forms must not change.
    #[test]
    fn changelog_records_are_pinned() {
        assert_eq!(hex(&vec![record()]), "01010108010604020600020700016e05060169016a0178010208000209000173");
        let mask = Some(Mask::NONE);
        let user = ChangelogUser { id: 1, name: "u".to_owned(), mask, cleared: 2, active: TIME, nonce: 7 };
        assert_eq!(
            hex(&State { last: 1, last_user: 2, held_max: 3, bytes: 4, users: vec![user] }),
            "010102030401010175010002060407"
        );
    }

    #[test]
    fn accesses_are_left_out_while_records_are_not_stored_or_space_is_short() {
        let mut changelog = Changelog::open(&MemStore::new()).unwrap();
        assert!(changelog.takes_accesses(false));
        changelog.pending = vec![record(); PENDING_MAX];
        assert!(!changelog.takes_accesses(false) && !changelog.takes_accesses(false));
        changelog.pending.pop();
        assert!(changelog.takes_accesses(false));
        assert!(!changelog.takes_accesses(true), "the reserve of the disk is for changes");
        assert_eq!(changelog.left_out, 3);
    }
}
