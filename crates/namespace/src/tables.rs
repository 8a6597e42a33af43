//! The tables over the store: two layers of changes, and caches of current values.
//!
//! A read tries the cache, the active layer, the committing layer and the store, in this order.
//! Every write goes to the active layer and the cache, so a cached value is always current. Values
//! stay typed until the batch is written.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use rustc_hash::FxHashSet;
use sheen_wire::{self as wire, Errno, Fid, FileKind, ldlm::bits};

use crate::{
    Batch, Store, StoreError,
    cache::Cache,
    invalidations::Invalidations,
    key,
    layer::Layer,
    quotas::Quotas,
    record::{Bucket, Inode, Stored, Xattrs, decode, encode},
    table_scan::for_each_in,
    watch::Watch,
};

/// Approximate overhead of a record in the store, in bytes; for the bound on a batch.
const RECORD_BYTES: usize = 64;

pub(crate) struct Tables<S> {
    store: Arc<S>,
    active: Layer,
    committing: Option<Arc<Layer>>,
    inodes: Cache<Fid, Arc<Inode>>,
    /// Also caches names that do not exist.
    entries: Cache<(Fid, u64), Option<Bucket>>,
    /// Transno of the operation in progress, assigned if the operation changes something.
    next: u64,
    changed: bool,
    /// Invalidations of the operation in progress.
    invalidations: Invalidations,
    /// Files of each user, group and project. Derived where inodes are written, as invalidations
    /// are.
    pub(crate) quotas: Quotas,
    /// Notes changes during a check that repairs. A repair itself runs without it.
    pub(crate) watch: Option<Watch>,
    /// Files of the owner log that the service knows, and that were not logged again since.
    pub(crate) known_owners: FxHashSet<Fid>,
    ops: u64,
    committed: u64,
    fault: Option<StoreError>,
}

impl<S: Store> Tables<S> {
    pub(crate) fn new(store: Arc<S>, cache_bytes_max: usize, transno: u64) -> Tables<S> {
        Tables {
            store,
            active: Layer { first: transno + 1, last: transno, ..Layer::default() },
            committing: None,
            inodes: Cache::new(cache_bytes_max / 3 * 2),
            entries: Cache::new(cache_bytes_max / 3),
            next: transno + 1,
            changed: false,
            invalidations: Invalidations::default(),
            quotas: Quotas::default(),
            watch: None,
            known_owners: FxHashSet::default(),
            ops: 0,
            committed: transno,
            fault: None,
        }
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// Adds an invalidation ([`sheen_wire::ldlm::bits`]) for an inode none of whose records
    /// changes.
    pub(crate) fn invalidate(&mut self, fid: Fid, bits: u64) {
        self.invalidations.note(fid, bits);
    }

    /// Ends an operation. Returns its transno (0 if it changed nothing) and its invalidations.
    pub(crate) fn end(&mut self) -> (u64, Vec<(Fid, u64)>) {
        let invalidations = self.invalidations.take();
        self.inodes.trim();
        self.entries.trim();
        if !std::mem::take(&mut self.changed) {
            return (0, invalidations);
        }
        let transno = self.next;
        self.active.last = transno;
        self.ops += 1;
        self.next += 1;
        (transno, invalidations)
    }

    /// Gives this transno to the next operation. It is above that of the last one. Returns the
    /// transno that the operation would have had.
    pub(crate) fn skip_to(&mut self, transno: u64) -> u64 {
        let next = self.next;
        self.next = next.max(transno);
        next
    }

    /// Takes back [`Tables::skip_to`], because the operation has changed nothing. Otherwise a sync
    /// would wait for a transno that no batch has.
    pub(crate) fn skip_back(&mut self, next: u64) {
        self.next = next;
    }

    /// Returns the transno of the operation in progress, if it has changed something.
    pub(crate) fn transno_in_progress(&self) -> Option<u64> {
        self.changed.then_some(self.next)
    }

    pub(crate) fn last_transno(&self) -> u64 {
        self.next - 1
    }

    pub(crate) fn last_committed(&self) -> u64 {
        self.committed
    }

    pub(crate) fn dirty(&self) -> (u64, usize) {
        (self.ops, self.active.bytes)
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.active.len() == 0
    }

    pub(crate) fn is_committing(&self) -> bool {
        self.committing.is_some()
    }

    /// Turns the active layer into the committing one. The caller has made sure that there is none.
    pub(crate) fn seal(&mut self) -> Batch {
        let last = self.last_transno();
        let fresh = Layer { first: last + 1, last, ..Layer::default() };
        let layer = Arc::new(std::mem::replace(&mut self.active, fresh));
        self.ops = 0;
        self.committing = Some(layer.clone());
        Batch { layer }
    }

    /// Drops the committing layer if it ends with `last`, and returns whether it does.
    pub(crate) fn committed(&mut self, last: u64) -> bool {
        let ours = self.committing.take_if(|layer| layer.last == last).is_some();
        if ours {
            self.committed = last;
        }
        ours
    }

    /// Returns the transno of a file's last change, if that is not durable.
    pub(crate) fn uncommitted(&self, fid: Fid) -> Option<u64> {
        let at = |layer: &Layer| layer.inodes.get(&fid).map(|(_, transno)| *transno);
        at(&self.active).or_else(|| self.committing.as_ref().and_then(|l| at(l)))
    }

    pub(crate) fn take_fault(&mut self) -> Option<StoreError> {
        self.fault.take()
    }

    /// Stores the error for the operator; the request gets EIO.
    pub(crate) fn fail<T>(&mut self, result: Result<T, StoreError>) -> wire::Result<T> {
        result.map_err(|e| {
            self.fault = Some(e);
            Errno::EIO
        })
    }

    /// Returns the value of the newest layer that has one.
    fn in_layers<'a, T>(&'a self, f: impl FnMut(&'a Layer) -> Option<T>) -> Option<T> {
        [Some(&self.active), self.committing.as_deref()].into_iter().flatten().find_map(f)
    }

    /// Records that the operation in progress changes something, of about so many bytes.
    pub(crate) fn touch(&mut self, bytes: usize) {
        self.changed = true;
        self.active.bytes += bytes + RECORD_BYTES;
    }

    /// Returns a file, possibly an orphan; `None` if there is no such inode.
    pub(crate) fn inode(&mut self, fid: Fid) -> wire::Result<Option<Arc<Inode>>> {
        if let Some(inode) = self.inodes.get(&fid) {
            return Ok(Some(inode.clone()));
        }
        let found = match self.in_layers(|l| l.inodes.get(&fid).map(|(inode, _)| inode)).cloned() {
            Some(inode) => inode,
            None => {
                let read = read(&*self.store, &key::inode(fid));
                self.fail(read)?.map(Arc::new)
            }
        };
        if let Some(inode) = &found {
            self.inodes.put(fid, inode.clone(), inode.weight());
        }
        Ok(found)
    }

    pub(crate) fn put_inode(&mut self, fid: Fid, inode: Inode) {
        let weight = inode.weight();
        let inode = Arc::new(inode);
        self.touch(weight / 2);
        // An operation has read the inode that it changes. The cache still has it, because it is
        // trimmed only between operations. Only a new inode is not in the cache.
        let old = self.inodes.get(&fid).map(|i| &**i);
        self.invalidations.inode(fid, old, Some(&inode));
        if let Some(watch) = &mut self.watch {
            watch.inode(fid, old, Some(&inode), |id| self.quotas.used(id));
        }
        let changes_owner = self.quotas.inode(old, Some(&inode));
        if changes_owner && inode.kind == FileKind::Regular && inode.layout.is_some() {
            self.log_owner(fid);
        }
        self.inodes.put(fid, inode.clone(), weight);
        self.active.inodes.insert(fid, (Some(inode), self.next));
    }

    pub(crate) fn remove_inode(&mut self, fid: Fid) {
        self.touch(0);
        let old = self.inodes.get(&fid).map(|i| &**i);
        self.invalidations.inode(fid, old, None);
        if let Some(watch) = &mut self.watch {
            watch.inode(fid, old, None, |id| self.quotas.used(id));
        }
        self.quotas.inode(old, None);
        self.inodes.remove(&fid);
        self.active.inodes.insert(fid, (None, self.next));
    }

    /// Adds a file to the owner log (module `owner_log`): its objects must get its present owner.
    pub(crate) fn log_owner(&mut self, fid: Fid) {
        self.known_owners.remove(&fid);
        // Encoding nothing does not fail.
        self.set_raw(key::of_fid(key::OWNERS, fid), encode(&(), Vec::new()).ok());
    }

    pub(crate) fn bucket(&mut self, dir: Fid, hash: u64) -> wire::Result<Option<Bucket>> {
        let at = (dir, hash);
        if let Some(bucket) = self.entries.get(&at) {
            return Ok(bucket.clone());
        }
        let found = match self.in_layers(|l| l.entries.get(&at)).cloned() {
            Some(bucket) => bucket,
            None => {
                let read = read(&*self.store, &key::entry(dir, hash));
                self.fail(read)?
            }
        };
        self.entries.put(at, found.clone(), found.as_ref().map_or(96, Bucket::weight));
        Ok(found)
    }

    pub(crate) fn put_bucket(&mut self, dir: Fid, hash: u64, bucket: Option<Bucket>) {
        let weight = bucket.as_ref().map_or(96, Bucket::weight);
        self.touch(weight / 2);
        let old = self.entries.get(&(dir, hash)).and_then(Option::as_ref);
        self.invalidations.entries(dir, old, bucket.as_ref());
        if let Some(watch) = &mut self.watch {
            watch.bucket(dir, old, bucket.as_ref());
        }
        self.entries.put((dir, hash), bucket.clone(), weight);
        self.active.entries.insert((dir, hash), bucket);
    }

    /// Returns up to `limit` buckets of a directory from `hash` on, in order.
    pub(crate) fn buckets(&mut self, dir: Fid, hash: u64, limit: usize) -> wire::Result<Vec<(u64, Bucket)>> {
        let result = self.scan_buckets(dir, hash, limit);
        self.fail(result)
    }

    fn scan_buckets(&self, dir: Fid, hash: u64, limit: usize) -> Result<Vec<(u64, Bucket)>, StoreError> {
        let mut out = Vec::new();
        let mut from = hash;
        loop {
            let stored = self.store.range(&key::entry(dir, from), &key::entry(dir, u64::MAX), limit)?;
            // Names in the layers count only up to the hash where the read of the store ended:
            // further on, the store may have names between them.
            let to = if stored.len() < limit { u64::MAX } else { stored.last().map_or(u64::MAX, |l| hash_of(&l.0)) };
            let range = (Bound::Included((dir, from)), Bound::Included((dir, to)));
            let mut stored = stored.iter().peekable();
            let mut old = self.committing.iter().flat_map(|l| l.entries.range(range)).peekable();
            let mut new = self.active.entries.range(range).peekable();
            while out.len() < limit {
                let heads = [
                    stored.peek().map(|(k, _)| hash_of(k)),
                    old.peek().map(|((_, hash), _)| *hash),
                    new.peek().map(|((_, hash), _)| *hash),
                ];
                let Some(hash) = heads.into_iter().flatten().min() else { break };
                let s = stored.next_if(|(k, _)| hash_of(k) == hash);
                let o = old.next_if(|((_, h), _)| *h == hash);
                let n = new.next_if(|((_, h), _)| *h == hash);
                match (n.or(o), s) {
                    (Some((_, bucket)), _) => out.extend(bucket.clone().map(|b| (hash, b))),
                    (None, Some((key, value))) => out.push((hash, decode(key, value)?)),
                    (None, None) => break,
                }
            }
            if out.len() >= limit || to == u64::MAX {
                return Ok(out);
            }
            from = to + 1;
        }
    }

    /// Returns the xattr record of a file; empty if there is none.
    pub(crate) fn xattrs(&mut self, fid: Fid) -> wire::Result<Arc<Xattrs>> {
        if let Some(found) = self.in_layers(|l| l.xattrs.get(&fid)) {
            return Ok(found.clone().unwrap_or_default());
        }
        let read = read(&*self.store, &key::xattrs(fid));
        Ok(self.fail(read)?.map(Arc::new).unwrap_or_default())
    }

    /// Sets or removes the xattr record. The caller sets [`Inode::xattr_bytes`], too.
    pub(crate) fn put_xattrs(&mut self, fid: Fid, xattrs: Option<Xattrs>) {
        if xattrs.is_some() {
            // The content may differ with the same number of bytes. A removal shows in the inode.
            self.invalidations.note(fid, bits::XATTR);
        }
        self.touch(xattrs.as_ref().map_or(0, Xattrs::bytes));
        self.active.xattrs.insert(fid, xattrs.map(Arc::new));
    }

    pub(crate) fn put_raw(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.changed = true;
        self.set_raw(key, value);
    }

    /// As [`Tables::put_raw`], for changes that belong to no operation.
    pub(crate) fn set_raw(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.active.bytes += RECORD_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
        self.active.raw.insert(key, value);
    }

    /// Counts bytes that are written when the batch is sealed.
    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.active.bytes += bytes;
    }

    /// Whether a raw record exists.
    pub(crate) fn has_raw(&mut self, key: &[u8]) -> wire::Result<bool> {
        if let Some(value) = self.in_layers(|l| l.raw.get(key)) {
            return Ok(value.is_some());
        }
        let stored = self.store.get(key);
        Ok(self.fail(stored)?.is_some())
    }

    /// Whether a layer deletes a raw record that the store has.
    pub(crate) fn raw_deleted(&self, key: &[u8]) -> bool {
        matches!(self.in_layers(|l| l.raw.get(key)), Some(None))
    }

    /// Returns the present keys of a raw table. For small tables.
    pub(crate) fn raw_keys(&self, table: u8) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut keys = BTreeMap::new();
        for_each_in(&*self.store, table, |key, _| {
            keys.insert(key.to_vec(), true);
            Ok(())
        })?;
        let (from, to) = key::table(table);
        for layer in [self.committing.as_deref(), Some(&self.active)].into_iter().flatten() {
            let range = layer.raw.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
            keys.extend(range.map(|(k, v)| (k.clone(), v.is_some())));
        }
        Ok(keys.into_iter().filter_map(|(k, there)| there.then_some(k)).collect())
    }
}

fn hash_of(key: &[u8]) -> u64 {
    key::entry_hash(key).unwrap_or(u64::MAX)
}

/// Reads one record of the store.
pub(crate) fn read<T: Stored>(store: &impl Store, key: &[u8]) -> Result<Option<T>, StoreError> {
    store.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
}
