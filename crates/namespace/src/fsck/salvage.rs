//! Copies the readable records of a damaged store to a new one.
//!
//! Each table is read from its start up to the first damage, and from its end down to the last.
//! Between the two lies a hole. Keys of records in the hole follow from records that were copied:
//! an entry names a file, a file may have entries and attributes. From each such key the read goes
//! on up to the next damage. The records found may name further files. So the search is repeated as
//! long as it finds something.

use std::{collections::BTreeSet, sync::Arc};

use sheen_wire::Fid;

use crate::{
    Batch, Store, StoreError, key,
    layer::Layer,
    namespace::hash_of_name,
    record::{Bucket, Counters, Inode, Link, Super, decode, encode},
    store::Records,
    table_scan::for_each_in,
    tables::read,
};

/// All tables.
const TABLES: &[u8] = b"abcdefghijklmnopqrsuwxy";
/// Records that are read at once, away from damage.
const RECORDS: usize = 1024;
/// Added to the highest transno that was found: the last ones may be lost, and must not be used
/// again.
const TRANSNO_GAP: u64 = 1 << 32;
/// The same for sequences of FIDs.
const SEQ_GAP: u64 = 1 << 16;
/// The same for numbers in the unlink log.
const DESTROY_GAP: u64 = 1 << 32;

/// A store that may be damaged.
pub trait DamagedStore: Store {
    /// As [`Store::range`], from the last record down.
    ///
    /// # Errors
    /// As [`Store::range`].
    fn range_back(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError>;
}

/// A part of a table that was not read: `from <= key < to`.
struct Hole {
    from: Vec<u8>,
    to: Vec<u8>,
}

struct Copy<'a, D, S> {
    source: &'a D,
    target: &'a S,
    holes: Vec<Hole>,
    records: u64,
}

/// Copies all readable records of `source` to `target`, which is empty. Returns their number.
///
/// # Errors
/// The superblock is lost: without it no name can be found in its directory. `target` cannot be
/// written.
pub fn salvage(source: &impl DamagedStore, target: &impl Store) -> Result<u64, StoreError> {
    let mut copy = Copy { source, target, holes: Vec::new(), records: 0 };
    for table in TABLES {
        copy.table(*table)?;
    }
    let superblock = read(target, key::SUPER)?.ok_or(StoreError::Incomplete("superblock"))?;
    loop {
        let before = copy.records;
        copy.search(&superblock)?;
        if copy.records == before {
            break;
        }
    }
    let records = copy.records;
    if read::<Counters>(target, key::COUNTERS).ok().flatten().is_none() {
        let counters = encode(&counters(target)?, Vec::new())?;
        target.commit(&batch([(key::COUNTERS.to_vec(), counters)]))?;
    }
    Ok(records)
}

impl<D: DamagedStore, S: Store> Copy<'_, D, S> {
    /// Copies a table from both ends.
    fn table(&mut self, table: u8) -> Result<(), StoreError> {
        let (from, to) = key::table(table);
        let Some(from) = self.forward(from.to_vec(), &to)? else { return Ok(()) };
        let (mut to, mut limit) = (to.to_vec(), RECORDS);
        while from < to {
            match self.source.range_back(&from, &to, limit) {
                Ok(records) => {
                    let Some((first, _)) = records.last() else { return Ok(()) };
                    to.clone_from(first);
                    let all = records.len() < limit;
                    self.put(records)?;
                    if all {
                        return Ok(());
                    }
                }
                Err(e) => match smaller(limit, e)? {
                    Some(less) => limit = less,
                    None => break,
                },
            }
        }
        self.holes.push(Hole { from, to });
        Ok(())
    }

    /// Copies records from a key on. Returns the key at which it met damage.
    fn forward(&mut self, from: Vec<u8>, to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let (mut from, mut limit) = (from, RECORDS);
        loop {
            match self.source.range(&from, to, limit) {
                Ok(records) => {
                    let all = records.len() < limit;
                    if let Some((last, _)) = records.last() {
                        from.clone_from(last);
                        from.push(0);
                    }
                    self.put(records)?;
                    if all {
                        return Ok(None);
                    }
                }
                Err(e) => match smaller(limit, e)? {
                    Some(less) => limit = less,
                    None => return Ok(Some(from)),
                },
            }
        }
    }

    /// Looks for records in the holes.
    fn search(&mut self, superblock: &Super) -> Result<(), StoreError> {
        let holes = std::mem::take(&mut self.holes);
        if holes.is_empty() {
            return Ok(());
        }
        let candidates = self.candidates(superblock)?;
        for Hole { mut from, to } in holes {
            let first = candidates.partition_point(|key| *key <= from);
            for key in candidates[first..].iter().take_while(|key| **key < to) {
                // Most candidates of a hole are damaged or lie in the part that was just read.
                if *key < from || !self.is_readable(key, &to)? {
                    continue;
                }
                let end = self.forward(key.clone(), &to)?.unwrap_or_else(|| to.clone());
                self.holes.push(Hole { from: std::mem::replace(&mut from, end), to: key.clone() });
            }
            if from < to {
                self.holes.push(Hole { from, to });
            }
        }
        Ok(())
    }

    fn is_readable(&self, from: &[u8], to: &[u8]) -> Result<bool, StoreError> {
        match self.source.range(from, to, 1) {
            Err(e) if e.is_damage() => Ok(false),
            read => read.map(|_| true),
        }
    }

    /// Returns the keys that the copied records lead to, in order.
    fn candidates(&self, superblock: &Super) -> Result<Vec<Vec<u8>>, StoreError> {
        let Super { hash_seed, hash_bits, .. } = *superblock;
        let mut keys = BTreeSet::new();
        let mut file = |fid: Fid| keys.extend([key::entry(fid, 0), key::inode(fid), key::xattrs(fid)]);
        for_each_in(self.target, b'e', |key, value| {
            key::orphan_fid(key).into_iter().for_each(&mut file);
            if let Ok(bucket) = decode::<Bucket>(key, value) {
                bucket.iter().for_each(|entry| file(entry.fid));
            }
            Ok(())
        })?;
        let mut names = Vec::new();
        for_each_in(self.target, b'i', |key, value| {
            key::orphan_fid(key).into_iter().for_each(&mut file);
            if let Ok(inode) = decode::<Inode>(key, value) {
                let entry = |link: &Link| key::entry(link.parent, hash_of_name(hash_seed, hash_bits, &link.name));
                names.extend(inode.links.iter().map(entry));
            }
            Ok(())
        })?;
        keys.extend(names);
        Ok(keys.into_iter().collect())
    }

    fn put(&mut self, records: Records) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        self.records += records.len() as u64;
        self.target.commit(&batch(records))
    }
}

/// Returns the number of records to read after an error; `None`: the next record itself is damaged.
fn smaller(limit: usize, error: StoreError) -> Result<Option<usize>, StoreError> {
    if !error.is_damage() {
        return Err(error);
    }
    Ok((limit > 1).then_some(limit / 2))
}

fn batch(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Batch {
    let raw = records.into_iter().map(|(key, value)| (key, Some(value))).collect();
    Batch { layer: Arc::new(Layer { raw, ..Layer::default() }) }
}

/// Returns counters above everything that the records use.
fn counters(store: &impl Store) -> Result<Counters, StoreError> {
    let mut counters = Counters::default();
    for_each_in(store, b'i', |key, _| {
        counters.files += 1;
        counters.seq_reserved = counters.seq_reserved.max(key::orphan_fid(key).map_or(0, |fid| fid.seq));
        Ok(())
    })?;
    for_each_in(store, b'u', |key, _| {
        counters.destroy = counters.destroy.max(key::destroy_seqno(key).unwrap_or_default());
        Ok(())
    })?;
    for_each_in(store, key::REPLIES, |key, value| {
        let executed = decode::<Vec<(u64, u64)>>(key, value).unwrap_or_default();
        counters.transno = executed.iter().map(|(_, transno)| *transno).fold(counters.transno, u64::max);
        Ok(())
    })?;
    counters.transno += TRANSNO_GAP;
    counters.destroy += DESTROY_GAP;
    counters.seq_reserved += SEQ_GAP;
    Ok(counters)
}
