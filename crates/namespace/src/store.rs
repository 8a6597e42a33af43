//! The interface to a key-value store, and a store in memory for tests and models.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use crate::{Batch, StoreError};

/// Keys and values as [`Store::range`] returns them.
pub type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// An ordered map from keys (at most [`crate::Batch::KEY_BYTES_MAX`] bytes) to values that outlives
/// the process.
pub trait Store: Send + Sync {
    /// Returns the value of a key, as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Returns up to `limit` records with `from <= key < to`, in order of key.
    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError>;
    /// Applies all records of the batch or none, and returns when they are durable. Called outside
    /// the engine, one batch at a time, in order. Reads continue meanwhile and may see the state
    /// before or after.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;
}

/// A store in memory, "durable" as long as the value lives. Tests use it across instances of
/// [`crate::Namespace`].
#[derive(Default, Debug)]
pub struct MemStore {
    map: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl MemStore {
    /// Creates an empty store.
    pub fn new() -> MemStore {
        MemStore::default()
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.map.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes one record, for tests of damaged stores and of stores that earlier releases wrote.
    pub fn remove(&self, key: &[u8]) {
        self.map.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Overwrites one record, for tests of damaged stores.
    pub fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        self.map.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }
}

impl Store for MemStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.map.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let range = map.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)));
        Ok(range.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        batch.for_each(|key, value| {
            match value {
                Some(value) => drop(map.insert(key.to_vec(), value.to_vec())),
                None => drop(map.remove(key)),
            }
            Ok(())
        })
    }
}
