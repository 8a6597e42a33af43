//! The passes over the tables of a store.

use std::{collections::BTreeMap, hash::Hasher};

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_layout::{Layout, MDT_OST};
use sheen_wire::{
    Fid, FileKind,
    changelog::Record,
    fid::{ROOT, SEQ_WIDTH},
    mds::NAME_MAX,
    seq::{client_seqs, ost_seq},
};
use siphasher::sip::SipHasher13;

use super::{
    found::{File, Found, ObjectAt, ObjectOf, Usage},
    problem::{EntryAt, Problem},
};
use crate::{
    ChangelogGc, Store, StoreError,
    changelog::State,
    format, key,
    namespace::hash_of_name,
    ops::{COOKIE_INDEX_BITS, is_dots},
    pool_quotas::{PoolIdRecord, PoolKindRecord},
    quotas::{IdRecord, KindRecord},
    record::{Bucket, Counters, Inode, OstIds, Stored, Super, Xattrs, decode},
    table_scan::for_each_in,
    tables::read,
};

/// Records between two reports of progress.
const PROGRESS_RECORDS: u64 = 4096;

/// One check of a store.
pub(super) struct Scan<'a, S> {
    pub store: &'a S,
    pub found: Found,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    /// Directories with entries that do not exist.
    missing_dirs: FxHashSet<Fid>,
}

impl<'a, S: Store> Scan<'a, S> {
    /// Begins a check. `progress` is called now and then with the numbers of records that were
    /// read and that there are, as estimated.
    pub fn new(store: &'a S, progress: &'a mut dyn FnMut(u64, u64)) -> Result<Scan<'a, S>, StoreError> {
        let known_format = format::check(store)?;
        let superblock: Super = read(store, key::SUPER)?.ok_or(StoreError::Incomplete("superblock"))?;
        let counters: Counters = read(store, key::COUNTERS)?.ok_or(StoreError::Incomplete("counters"))?;
        let mdt = format::mdt(superblock.mdt_index, Some(&superblock), known_format)?;
        let found = Found {
            superblock,
            counters,
            mdt,
            files: FxHashMap::default(),
            objects: FxHashMap::default(),
            owner_log: FxHashSet::default(),
            unlinked: FxHashSet::default(),
            ranges: BTreeMap::new(),
            ids: BTreeMap::new(),
            counts_files: format::counts_files(known_format),
            usage: Usage::new(),
            usage_found: Usage::new(),
            problems: Vec::new(),
            more: 0,
        };
        Ok(Scan { store, found, progress, done: 0, missing_dirs: FxHashSet::default() })
    }

    /// Reads all tables. Each file then has its numbers, and each single record is checked.
    pub fn run(&mut self) -> Result<(), StoreError> {
        self.table(b'i', Self::inode)?;
        self.table(b'x', Self::xattrs)?;
        self.table(b'e', Self::entries)?;
        self.table(b'p', Self::orphan)?;
        self.table(b'u', Self::unlinked)?;
        self.table(b'r', Self::range)?;
        self.table(b'o', Self::ids)?;
        self.table(key::REPLIES, |_, key, value| of_client::<Vec<(u64, u64)>>(key, value))?;
        self.table(key::CLIENTS, |_, key, value| of_client::<()>(key, value))?;
        self.table(b'h', |_, key, value| decode::<State>(key, value).map(drop))?;
        self.table(b'j', |_, key, value| decode::<ChangelogGc>(key, value).map(drop))?;
        self.table(key::CHANGELOG, |_, key, value| {
            key::changelog_last(key).ok_or_else(|| malformed(key))?;
            decode::<Vec<Record>>(key, value).map(drop)
        })?;
        self.table(b'w', |_, key, value| decode::<Vec<u64>>(key, value).map(drop))?;
        self.quotas()
    }

    /// Reads the tables of quotas.
    fn quotas(&mut self) -> Result<(), StoreError> {
        self.table(key::USAGE, |scan, key, value| {
            let id = key::quota_id(key).ok_or_else(|| malformed(key))?;
            scan.found.usage.insert(id, decode(key, value)?);
            Ok(())
        })?;
        self.table(key::LIMITS, |_, key, value| {
            key::quota_id(key).ok_or_else(|| malformed(key))?;
            decode::<IdRecord>(key, value).map(drop)
        })?;
        self.table(key::DEFAULTS, |_, key, value| {
            key::quota_kind(key).ok_or_else(|| malformed(key))?;
            decode::<KindRecord>(key, value).map(drop)
        })?;
        self.table(key::POOL_LIMITS, |_, key, value| {
            key::pool_quota_id(key).ok_or_else(|| malformed(key))?;
            decode::<PoolIdRecord>(key, value).map(drop)
        })?;
        self.table(key::POOL_DEFAULTS, |_, key, value| {
            key::pool_quota_kind(key).ok_or_else(|| malformed(key))?;
            decode::<PoolKindRecord>(key, value).map(drop)
        })?;
        self.table(key::OWNERS, |scan, key, value| {
            let fid = key::orphan_fid(key).ok_or_else(|| malformed(key))?;
            decode::<()>(key, value)?;
            scan.found.owner_log.insert(fid);
            Ok(())
        })
    }

    /// Calls `f` with each record of a table. A record that it cannot decode is a problem.
    fn table(
        &mut self,
        table: u8,
        f: impl Fn(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let store = self.store;
        for_each_in(store, table, |key, value| {
            self.done += 1;
            if self.done.is_multiple_of(PROGRESS_RECORDS) {
                // An inode and an entry for each file.
                (self.progress)(self.done, 2 * self.found.counters.files);
            }
            match f(self, key, value) {
                Err(StoreError::Corrupt { why, .. }) => {
                    self.found.report(Problem::Unreadable { key: key.to_vec(), why });
                    Ok(())
                }
                other => other,
            }
        })
    }

    fn inode(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let fid = self.fid_in(key)?;
        let inode: Inode = decode(key, value)?;
        let links_sum = inode.links.iter().fold(0, |sum: u64, l| sum.wrapping_add(self.sum(l.parent, &l.name)));
        let file = File {
            kind: inode.kind,
            owner: inode.owner(),
            nlink: inode.nlink,
            links_sum,
            links: inode.links.len() as u32,
            names_sum: 0,
            names: 0,
            parent: Fid::ZERO,
            entries: if inode.is_dir() { inode.entries } else { 0 },
            entries_found: 0,
            subdirs: 0,
            xattr_bytes: inode.xattr_bytes,
            xattr_bytes_found: 0,
            is_orphan: false,
        };
        self.found.files.insert(fid, file);
        for id in inode.owner().ids() {
            *self.found.usage_found.entry(id).or_default() += 1;
        }
        if fid != ROOT && fid.seq > self.found.counters.seq_reserved {
            self.found.report(Problem::ReusableFid(fid));
        }
        if let (FileKind::Regular, Some(layout)) = (inode.kind, &inode.layout) {
            self.layout(fid, layout);
        }
        Ok(())
    }

    fn layout(&mut self, fid: Fid, bytes: &[u8]) {
        let layout = match Layout::decode(bytes) {
            Ok(layout) => layout,
            Err(e) => return self.found.report(Problem::BadLayout(fid, e.to_string())),
        };
        if layout.fid() != fid {
            self.found.report(Problem::LayoutOfOther(fid, layout.fid()));
        }
        for stripe in layout.all_objects() {
            let (ost, object) = (stripe.ost, stripe.object);
            if let Some(first) = self.found.objects.insert((ost, object), ObjectOf { file: fid, end: u64::MAX }) {
                self.found.report(Problem::SharedObject { ost, object, files: [first.file, fid] });
            }
        }
        for (stripe, end) in layout.object_ends() {
            if let Some(object) = self.found.objects.get_mut(&(stripe.ost, stripe.object)) {
                object.end = end;
            }
        }
    }

    fn xattrs(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let fid = self.fid_in(key)?;
        let xattrs: Xattrs = decode(key, value)?;
        match self.found.files.get_mut(&fid) {
            Some(file) => file.xattr_bytes_found = xattrs.bytes() as u32,
            None => self.found.report(Problem::XattrsOfNoFile(fid)),
        }
        Ok(())
    }

    fn entries(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let (dir, hash) = (self.fid_in(key)?, key::entry_hash(key).ok_or_else(|| malformed(key))?);
        let bucket: Bucket = decode(key, value)?;
        let parent_kind = self.found.files.get(&dir).map(|parent| parent.kind);
        if parent_kind.is_none() && self.missing_dirs.insert(dir) {
            self.found.report(Problem::NoDirectory(dir));
        }
        let in_dir = parent_kind.is_none_or(|kind| kind == FileKind::Dir);
        for (position, entry) in bucket.iter().enumerate() {
            let at = EntryAt { dir, hash, position, name: entry.name.to_vec(), fid: entry.fid };
            let others = || bucket.iter().take(position);
            let why = if !in_dir {
                Some("it belongs to a file that is no directory")
            } else if !is_valid(&entry.name) {
                Some("the name is not valid")
            } else if self.hash(&entry.name) != hash {
                Some("it is stored at the place of another name")
            } else if others().any(|other| other.name == entry.name) {
                Some("the directory has the name twice")
            } else if others().any(|other| other.index >= entry.index) || entry.index >> COOKIE_INDEX_BITS != 0 {
                Some("its number is wrong")
            } else {
                None
            };
            match why {
                Some(why) => self.found.report(Problem::BadEntry(at, why)),
                None => self.entry(at, entry.kind),
            }
        }
        Ok(())
    }

    /// Counts an entry that a lookup finds.
    fn entry(&mut self, at: EntryAt, kind: FileKind) {
        let sum = self.sum(at.dir, &at.name);
        if let Some(parent) = self.found.files.get_mut(&at.dir) {
            parent.entries_found += 1;
            parent.subdirs += u32::from(kind == FileKind::Dir);
        }
        match self.found.files.get_mut(&at.fid) {
            Some(file) => {
                file.names += 1;
                file.names_sum = file.names_sum.wrapping_add(sum);
                file.parent = at.dir;
                if file.kind != kind {
                    let is = file.kind;
                    self.found.report(Problem::WrongType(at, is));
                }
            }
            None => self.found.report(Problem::Dangling(at)),
        }
    }

    fn orphan(&mut self, key: &[u8], _: &[u8]) -> Result<(), StoreError> {
        let fid = key::orphan_fid(key).ok_or_else(|| malformed(key))?;
        match self.found.files.get_mut(&fid).filter(|file| file.names == 0) {
            Some(file) => file.is_orphan = true,
            None => self.found.report(Problem::WrongOrphan(fid)),
        }
        Ok(())
    }

    fn unlinked(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        for stripe in unlinked_layout(key, value)?.all_objects() {
            self.found.unlinked.insert((stripe.ost, stripe.object));
        }
        Ok(())
    }

    fn range(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let at = key::ost_index(key).zip(key::orphan_first(key)).ok_or_else(|| malformed(key))?;
        self.found.ranges.insert(at, decode(key, value)?);
        Ok(())
    }

    fn ids(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let ost = key::ost_index(key).ok_or_else(|| malformed(key))?;
        let ids: OstIds = decode(key, value)?;
        self.found.ids.insert(ost, ids);
        Ok(())
    }

    /// Checks the ids of all objects against those that the MDT is going to destroy or to use.
    pub fn object_ids(&mut self) {
        let mdt = self.found.mdt;
        let is_ours = |&(ost, object): &ObjectAt| ost != MDT_OST && object.seq == ost_seq(mdt, ost);
        let used = || self.found.objects.iter().filter(|(at, _)| is_ours(at));
        let doomed = used().filter(|(at, _)| self.found.is_doomed(**at));
        let mut problems: Vec<Problem> =
            doomed.map(|(&(ost, object), of)| Problem::DoomedObject { ost, object, file: of.file }).collect();
        // Objects that wait for their destruction have ids in use, too.
        let in_ranges = self.found.ranges.iter().map(|(&(ost, _), &last)| (ost, Fid::new(ost_seq(mdt, ost), last)));
        let unlinked = self.found.unlinked.iter().copied().filter(is_ours);
        let mut highest: BTreeMap<u32, Fid> = BTreeMap::new();
        for (ost, object) in used().map(|(at, _)| *at).chain(unlinked).chain(in_ranges) {
            let highest = highest.entry(ost).or_insert(object);
            *highest = object.max(*highest);
        }
        for (ost, object) in highest {
            let bound = self.found.ids.get(&ost).map_or(0, |ids| ids.reserved);
            if object.oid > bound {
                problems.push(Problem::ReusableObject { ost, object, bound });
            }
        }
        problems.into_iter().for_each(|problem| self.found.report(problem));
    }

    /// Returns the FID in a key of inodes, entries or extended attributes.
    ///
    /// # Errors
    /// This MDT never assigns such a FID.
    fn fid_in(&self, key: &[u8]) -> Result<Fid, StoreError> {
        let fid = key::orphan_fid(key).ok_or_else(|| malformed(key))?;
        let ids = 1..=SEQ_WIDTH;
        let is_ours = client_seqs(self.found.mdt).contains(&fid.seq) && ids.contains(&fid.oid) && fid.ver == 0;
        if fid == ROOT || is_ours { Ok(fid) } else { Err(corrupt(key, format!("{fid} is no FID of this MDT"))) }
    }

    fn hash(&self, name: &[u8]) -> u64 {
        hash_of_name(self.found.superblock.hash_seed, self.found.superblock.hash_bits, name)
    }

    /// Returns a number for a name in a directory. The sums of these numbers tell whether two sets
    /// of names are equal.
    fn sum(&self, dir: Fid, name: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.found.superblock.hash_seed, 0);
        hasher.write(&dir.to_key());
        hasher.write(name);
        hasher.finish()
    }
}

/// Decodes a record of the unlink log.
pub(super) fn unlinked_layout(key: &[u8], value: &[u8]) -> Result<Layout, StoreError> {
    let bytes: bytes::Bytes = decode(key, value)?;
    Layout::decode(&bytes).map_err(|e| corrupt(key, e.to_string()))
}

/// Decodes a record of a client.
fn of_client<T: Stored>(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    key::client_of(key).ok_or_else(|| malformed(key))?;
    decode::<T>(key, value).map(drop)
}

fn is_valid(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !is_dots(name) && !name.contains(&b'/') && !name.contains(&0)
}

fn malformed(key: &[u8]) -> StoreError {
    corrupt(key, "malformed key".to_owned())
}

fn corrupt(key: &[u8], why: String) -> StoreError {
    StoreError::Corrupt { key: format!("{key:02x?}"), why }
}
