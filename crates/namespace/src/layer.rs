//! Layers of changes, and the batches that they become when they are sealed. Values stay typed
//! until the batch is written.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use sheen_wire::Fid;

use crate::{
    StoreError, key,
    record::{Bucket, Inode, Xattrs, encode},
};

/// Changes of a range of transnos. `None` is a deletion.
#[derive(Default, Debug)]
pub(crate) struct Layer {
    pub first: u64,
    pub last: u64,
    /// Approximate size in bytes.
    pub bytes: usize,
    /// With the transno of the last change.
    pub inodes: FxHashMap<Fid, (Option<Arc<Inode>>, u64)>,
    pub entries: BTreeMap<(Fid, u64), Option<Bucket>>,
    pub xattrs: BTreeMap<Fid, Option<Arc<Xattrs>>>,
    /// Records of tables that have no type here, as bytes.
    pub raw: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Layer {
    pub(crate) fn len(&self) -> usize {
        self.inodes.len() + self.entries.len() + self.xattrs.len() + self.raw.len()
    }

    /// Walks the records in key order: tables sort by their letter (`e` `i` `x`), with `raw` in
    /// between.
    pub(crate) fn for_each<E: From<StoreError>>(
        &self,
        mut f: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut raw = self.raw.iter().peekable();
        let mut buf = Vec::new();
        let mut inodes: Vec<_> = self.inodes.iter().collect();
        inodes.sort_unstable_by_key(|(fid, _)| **fid);
        let typed = (self.entries.iter().map(|(&(dir, hash), b)| (key::entry(dir, hash), Record::Bucket(b.as_ref()))))
            .chain(inodes.into_iter().map(|(fid, (i, _))| (key::inode(*fid), Record::Inode(i.as_deref()))))
            .chain(self.xattrs.iter().map(|(fid, x)| (key::xattrs(*fid), Record::Xattrs(x.as_deref()))));
        let mut typed = typed.peekable();
        loop {
            let raw_first = match (raw.peek(), typed.peek()) {
                (None, None) => return Ok(()),
                (Some((k, _)), Some((t, _))) => *k < t,
                (r, _) => r.is_some(),
            };
            if raw_first && let Some((key, value)) = raw.next() {
                f(key, value.as_deref())?;
            } else if let Some((key, record)) = typed.next() {
                let encoded = match record {
                    Record::Bucket(b) => b.map(|b| encode(b, std::mem::take(&mut buf))),
                    Record::Inode(i) => i.map(|i| encode(i, std::mem::take(&mut buf))),
                    Record::Xattrs(x) => x.map(|x| encode(x, std::mem::take(&mut buf))),
                };
                match encoded {
                    None => f(&key, None)?,
                    Some(bytes) => {
                        buf = bytes?;
                        f(&key, Some(&buf))?;
                    }
                }
            }
        }
    }
}

enum Record<'a> {
    Bucket(Option<&'a Bucket>),
    Inode(Option<&'a Inode>),
    Xattrs(Option<&'a Xattrs>),
}

/// All changes since the last seal. Cheap to clone. Records are encoded while [`Batch::for_each`]
/// walks them, thus on the committing thread.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) layer: Arc<Layer>,
}

impl Batch {
    /// Returns a batch that sets these records, or removes them, whatever they are. For tests that
    /// damage a store.
    #[doc(hidden)]
    pub fn of_records(records: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>) -> Batch {
        Batch { layer: Arc::new(Layer { raw: records.into_iter().collect(), ..Layer::default() }) }
    }

    /// Longest key in bytes.
    pub const KEY_BYTES_MAX: usize = 64;

    /// Returns the first transno in the batch.
    pub fn first(&self) -> u64 {
        self.layer.first
    }

    /// Returns the last transno in the batch, to be passed to [`crate::Namespace::committed`].
    pub fn last(&self) -> u64 {
        self.layer.last
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.layer.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with every record in order of key: its value, or `None` if the key is to be
    /// deleted. Stops at the first error.
    pub fn for_each<E: From<StoreError>>(&self, f: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>) -> Result<(), E> {
        self.layer.for_each(f)
    }
}
