//! Repairs: the changes of one stage, as one batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sheen_layout::{Layout, LayoutError};
use sheen_wire::{
    Fid, FileKind, Time,
    fid::{ROOT, SEQ_WIDTH},
    quota::Id,
    seq::client_seqs,
};

use super::{
    found::{Found, ObjectAt, Usage},
    problem::{EntryAt, Problem},
    scan::unlinked_layout,
};
use crate::{
    Batch, Store, StoreError, key,
    layer::Layer,
    lost_found::{DIR_PERM, FILE_PERM, LOST_FOUND, name_of_object, one_object},
    namespace::hash_of_name,
    record::{Bucket, Counters, Dentry, Inode, Name, OstIds, encode},
    table_scan::for_each_in,
    tables::read,
};

/// Changes over a store.
struct Changes<'a, S> {
    store: &'a S,
    found: &'a Found,
    now: Time,
    layer: Layer,
    counters: Counters,
    /// Numbers of files by owner.
    usage: Usage,
    /// Last id in the sequence for new files; 0: there is no sequence yet.
    oid: u32,
    lost_found: Option<Fid>,
}

/// Returns the batch that repairs `problems`, which are of one stage.
pub(super) fn batch(store: &impl Store, found: &Found, problems: &[&Problem], now: Time) -> Result<Batch, StoreError> {
    let transno = found.counters.transno + 1;
    let layer = Layer { first: transno, last: transno, ..Layer::default() };
    let counters = Counters { transno, ..found.counters };
    let usage = found.usage.clone();
    let mut changes = Changes { store, found, now, layer, counters, usage, oid: 0, lost_found: None };
    changes.entries(problems)?;
    changes.ids(problems)?;
    for problem in problems {
        changes.repair(problem)?;
    }
    let counters = encode(&changes.counters, Vec::new())?;
    changes.raw(key::COUNTERS.to_vec(), Some(counters));
    Ok(Batch { layer: Arc::new(changes.layer) })
}

impl<S: Store> Changes<'_, S> {
    /// Repairs a problem that is independent of all others of its stage.
    fn repair(&mut self, problem: &Problem) -> Result<(), StoreError> {
        match problem {
            Problem::Unreadable { key, .. } => self.raw(key.clone(), None),
            Problem::XattrsOfNoFile(fid) => self.raw(key::xattrs(*fid), None),
            Problem::WrongOrphan(fid) => self.raw(key::orphan(*fid), None),
            Problem::NoDirectory(fid) => self.directory(*fid)?,
            Problem::NoName(fid, kind) => self.keep(*fid, *kind)?,
            Problem::OrphanObject { ost, object, bytes: 0 } => self.destroy((*ost, *object))?,
            Problem::OrphanObject { ost, object, .. } => self.adopt((*ost, *object))?,
            Problem::InconsistentOwner { file, .. } => self.log_owner(*file)?,
            Problem::WrongLinks { fid, names } => self.edit(*fid, |inode| inode.set_links(names))?,
            Problem::LinkCount { fid, counted, .. } => self.edit(*fid, |inode| inode.nlink = *counted)?,
            Problem::EntryCount { fid, counted, .. } => self.edit(*fid, |inode| inode.entries = *counted)?,
            Problem::XattrBytes { fid, counted, .. } => self.edit(*fid, |inode| inode.xattr_bytes = *counted)?,
            Problem::FileCount { counted, .. } => self.counters.files = *counted,
            Problem::QuotaUsage { id, counted, .. } => self.put_usage(*id, *counted)?,
            Problem::ReusableFid(fid) => self.counters.seq_reserved = self.counters.seq_reserved.max(fid.seq),
            // See `entries` and `ids`.
            Problem::Dangling(_)
            | Problem::BadEntry(..)
            | Problem::SecondName(_)
            | Problem::Loop(_)
            | Problem::WrongType(..)
            | Problem::DoomedObject { .. }
            | Problem::ReusableObject { .. } => {}
            Problem::BadLayout(..)
            | Problem::LayoutOfOther(..)
            | Problem::SharedObject { .. }
            | Problem::BytesBeyondLayout { .. } => {}
        }
        Ok(())
    }

    /// Removes entries, and corrects their types.
    fn entries(&mut self, problems: &[&Problem]) -> Result<(), StoreError> {
        let mut wrong: BTreeMap<(Fid, u64), BTreeMap<usize, Option<FileKind>>> = BTreeMap::new();
        for problem in problems {
            let (at, kind): (&EntryAt, _) = match problem {
                Problem::Dangling(at) | Problem::BadEntry(at, _) | Problem::SecondName(at) | Problem::Loop(at) => {
                    (at, None)
                }
                Problem::WrongType(at, kind) => (at, Some(*kind)),
                _ => continue,
            };
            // A removal goes before another type.
            let change = wrong.entry((at.dir, at.hash)).or_default().entry(at.position).or_insert(kind);
            *change = change.and(kind);
        }
        for ((dir, hash), changes) in wrong {
            let Some(bucket) = self.bucket(dir, hash)? else { continue };
            let all = bucket.iter().cloned().enumerate();
            let remaining = all.filter_map(|(position, entry)| match changes.get(&position) {
                None => Some(entry),
                Some(kind) => kind.map(|kind| Dentry { kind, ..entry }),
            });
            self.put_bucket(dir, hash, remaining.collect());
        }
        Ok(())
    }

    /// Takes objects of files out of what is destroyed or used again.
    fn ids(&mut self, problems: &[&Problem]) -> Result<(), StoreError> {
        let doomed = problems.iter().filter_map(|problem| match problem {
            Problem::DoomedObject { ost, object, .. } => Some((*ost, *object)),
            _ => None,
        });
        let doomed: BTreeSet<ObjectAt> = doomed.collect();
        let (mut ids, mut ranges) = (self.found.ids.clone(), self.found.ranges.clone());
        for problem in problems {
            if let Problem::ReusableObject { ost, object, .. } = problem {
                ids.insert(*ost, OstIds { last: object.oid, reserved: object.oid });
            }
        }
        for (ost, object) in &doomed {
            if let Some(ids) = ids.get_mut(ost).filter(|ids| ids.last < object.oid && object.oid <= ids.reserved) {
                // As the next start of the MDT would do.
                ranges.insert((*ost, ids.last + 1), ids.reserved);
                ids.last = ids.reserved;
            }
            leave_range(&mut ranges, *ost, object.oid);
        }
        for (ost, ids) in ids.iter().filter(|(ost, ids)| self.found.ids.get(ost) != Some(ids)) {
            let record = encode(ids, Vec::new())?;
            self.raw(key::ost(*ost), Some(record));
        }
        for ((ost, first), _) in self.found.ranges.iter().filter(|(at, _)| !ranges.contains_key(at)) {
            self.raw(key::orphan_range(*ost, *first), None);
        }
        for ((ost, first), last) in ranges.iter().filter(|(at, last)| self.found.ranges.get(at) != Some(last)) {
            let record = encode(last, Vec::new())?;
            self.raw(key::orphan_range(*ost, *first), Some(record));
        }
        if doomed.is_empty() {
            return Ok(());
        }
        let mut entries = Vec::new();
        for_each_in(self.store, b'u', |key, value| {
            let is_used = |layout: Layout| layout.all_objects().any(|s| doomed.contains(&(s.ost, s.object)));
            if unlinked_layout(key, value).is_ok_and(is_used) {
                entries.push(key.to_vec());
            }
            Ok(())
        })?;
        // Objects of these entries that no file has are found by the next check.
        entries.into_iter().for_each(|key| self.raw(key, None));
        Ok(())
    }

    /// Makes a directory that has entries already.
    fn directory(&mut self, fid: Fid) -> Result<(), StoreError> {
        let inode = Inode { nlink: 2, perm: DIR_PERM, ..self.owned(FileKind::Dir)? };
        self.add_file(fid, inode)
    }

    /// Gives a file a name in the directory for lost files.
    fn keep(&mut self, fid: Fid, kind: FileKind) -> Result<(), StoreError> {
        let name = fid.to_string();
        self.name(fid, kind, name.trim_matches(['[', ']']))?;
        self.edit(fid, |inode| inode.nlink = inode.nlink.max(1))
    }

    /// Makes a file of an object. Adds it to the owner log, because the OST knows the object as one
    /// of another file, or of none.
    fn adopt(&mut self, (ost, object): ObjectAt) -> Result<(), StoreError> {
        let fid = self.new_fid()?;
        let layout = one_object(fid, ost, object).map_err(|e| no_layout(object, &e))?;
        let inode = Inode { perm: FILE_PERM, layout: Some(layout.encode().into()), ..self.owned(FileKind::Regular)? };
        self.add_file(fid, inode)?;
        self.log_owner(fid)?;
        self.name(fid, FileKind::Regular, &name_of_object(ost, object))
    }

    /// Adds a file to the owner log: the next start of the MDT sends the owner to the OSTs.
    fn log_owner(&mut self, fid: Fid) -> Result<(), StoreError> {
        let record = encode(&(), Vec::new())?;
        self.raw(key::of_fid(key::OWNERS, fid), Some(record));
        Ok(())
    }

    /// Lets the MDT destroy an object.
    fn destroy(&mut self, (ost, object): ObjectAt) -> Result<(), StoreError> {
        let layout = one_object(ROOT, ost, object).map_err(|e| no_layout(object, &e))?;
        let layout: bytes::Bytes = layout.encode().into();
        self.counters.destroy += 1;
        let record = encode(&layout, Vec::new())?;
        self.raw(key::destroy(self.counters.destroy), Some(record));
        Ok(())
    }

    /// Adds a name in the directory for lost files.
    fn name(&mut self, fid: Fid, kind: FileKind, name: &str) -> Result<(), StoreError> {
        let dir = self.lost_found()?;
        let name = self.add_entry(dir, name, fid, kind)?;
        self.edit(fid, |inode| {
            inode.links.clear();
            inode.add_link(dir, name);
        })
    }

    /// Returns the directory for lost files; makes it if there is none.
    fn lost_found(&mut self) -> Result<Fid, StoreError> {
        if let Some(dir) = self.lost_found {
            return Ok(dir);
        }
        let known = self.bucket(ROOT, self.hash(LOST_FOUND.as_bytes()))?;
        let known = known.as_ref().and_then(|bucket| bucket.find(LOST_FOUND.as_bytes()));
        let dir = match known.filter(|entry| entry.kind == FileKind::Dir) {
            Some(entry) => entry.fid,
            None => {
                let fid = self.new_fid()?;
                let inode = Inode { nlink: 2, perm: DIR_PERM, ..self.owned(FileKind::Dir)? };
                self.add_file(fid, inode)?;
                let name = self.add_entry(ROOT, LOST_FOUND, fid, FileKind::Dir)?;
                self.edit(fid, |inode| inode.add_link(ROOT, name))?;
                fid
            }
        };
        self.lost_found = Some(dir);
        Ok(dir)
    }

    /// Adds an entry to a directory, and counts it. Returns its name: another one, if the directory
    /// has that name already.
    fn add_entry(&mut self, dir: Fid, name: &str, fid: Fid, kind: FileKind) -> Result<Name, StoreError> {
        let mut name = name.to_owned();
        let (hash, mut entries) = loop {
            let hash = self.hash(name.as_bytes());
            let bucket = self.bucket(dir, hash)?;
            if bucket.as_ref().is_none_or(|bucket| bucket.find(name.as_bytes()).is_none()) {
                break (hash, bucket.map_or_else(Vec::new, |bucket| bucket.iter().cloned().collect::<Vec<_>>()));
            }
            name.push('~');
        };
        let name = Name::new(name.as_bytes());
        let index = (0..u8::MAX).find(|index| entries.iter().all(|entry| entry.index != *index)).unwrap_or(u8::MAX);
        entries.push(Dentry { index, kind, fid, name: name.clone() });
        entries.sort_by_key(|entry| entry.index);
        self.put_bucket(dir, hash, entries);
        let now = self.now;
        self.edit(dir, |inode| {
            inode.entries += 1;
            inode.nlink += u32::from(kind == FileKind::Dir);
            (inode.mtime, inode.ctime) = (now, now);
        })?;
        Ok(name)
    }

    /// Returns a new FID. No client was ever given its sequence.
    fn new_fid(&mut self) -> Result<Fid, StoreError> {
        if self.oid == 0 || self.oid == SEQ_WIDTH {
            let (first, end) = client_seqs(self.found.mdt).into_inner();
            self.counters.seq_reserved = self.counters.seq_reserved.max(first) + 1;
            self.oid = 0;
            if self.counters.seq_reserved > end {
                return Err(StoreError::Failed("there are no FIDs left for new files".to_owned()));
            }
        }
        self.oid += 1;
        Ok(Fid::new(self.counters.seq_reserved, self.oid))
    }

    /// Returns a new file of the owner of the root directory.
    fn owned(&self, kind: FileKind) -> Result<Inode, StoreError> {
        let root = self.inode(ROOT)?;
        let (uid, gid) = root.map_or((0, 0), |root| (root.uid, root.gid));
        Ok(Inode { uid, gid, ..Inode::new(kind, self.now) })
    }

    fn hash(&self, name: &[u8]) -> u64 {
        hash_of_name(self.found.superblock.hash_seed, self.found.superblock.hash_bits, name)
    }

    fn inode(&self, fid: Fid) -> Result<Option<Inode>, StoreError> {
        match self.layer.inodes.get(&fid) {
            Some((inode, _)) => Ok(inode.as_deref().cloned()),
            None => read(self.store, &key::inode(fid)),
        }
    }

    /// Adds a file, and counts it.
    fn add_file(&mut self, fid: Fid, inode: Inode) -> Result<(), StoreError> {
        self.counters.files += 1;
        let owner = inode.owner();
        self.put_inode(fid, inode);
        if !self.found.counts_files {
            return Ok(());
        }
        for id in owner.ids() {
            let used = self.usage.get(&id).copied().unwrap_or_default() + 1;
            self.put_usage(id, used)?;
        }
        Ok(())
    }

    /// Sets the number of files of a user, group or project.
    fn put_usage(&mut self, id: Id, used: u64) -> Result<(), StoreError> {
        self.usage.insert(id, used);
        let record = (used > 0).then(|| encode(&used, Vec::new())).transpose()?;
        self.raw(key::quota(key::USAGE, id), record);
        Ok(())
    }

    fn put_inode(&mut self, fid: Fid, inode: Inode) {
        self.layer.inodes.insert(fid, (Some(Arc::new(inode)), self.layer.last));
    }

    fn edit(&mut self, fid: Fid, change: impl FnOnce(&mut Inode)) -> Result<(), StoreError> {
        let Some(mut inode) = self.inode(fid)? else { return Ok(()) };
        change(&mut inode);
        self.put_inode(fid, inode);
        Ok(())
    }

    fn bucket(&self, dir: Fid, hash: u64) -> Result<Option<Bucket>, StoreError> {
        match self.layer.entries.get(&(dir, hash)) {
            Some(bucket) => Ok(bucket.clone()),
            None => read(self.store, &key::entry(dir, hash)),
        }
    }

    fn put_bucket(&mut self, dir: Fid, hash: u64, mut entries: Vec<Dentry>) {
        let bucket = (!entries.is_empty()).then(|| Bucket { first: entries.remove(0), rest: entries });
        self.layer.entries.insert((dir, hash), bucket);
    }

    fn raw(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.layer.raw.insert(key, value);
    }
}

/// Divides an orphan range, so that it does not contain an id.
fn leave_range(ranges: &mut BTreeMap<(u32, u32), u32>, ost: u32, oid: u32) {
    let range = ranges.range((ost, 0)..=(ost, oid)).next_back();
    let Some((&(_, first), &last)) = range.filter(|(_, last)| **last >= oid) else { return };
    ranges.remove(&(ost, first));
    if first < oid {
        ranges.insert((ost, first), oid - 1);
    }
    if oid < last {
        ranges.insert((ost, oid + 1), last);
    }
}

fn no_layout(object: Fid, error: &LayoutError) -> StoreError {
    StoreError::Failed(format!("cannot describe object {object}: {error}"))
}
