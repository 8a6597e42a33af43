//! Attrs: sizes, space and times of objects. All are 0 or absent for a missing object.
//!
//! The file is not opened for this, because most files of a tree are only read by `stat`.

use sheen_wire::{
    Fid, Result,
    ost::{ObjectAttr, StoredObject},
};

use super::Store;

impl Store {
    /// Returns the attributes of `objects`, in their order.
    ///
    /// # Errors
    /// As [`Store::attr`].
    pub fn attrs(&self, objects: &[Fid]) -> Result<Vec<ObjectAttr>> {
        objects.iter().map(|&object| self.attr(object)).collect()
    }

    /// Returns the attributes of an object.
    ///
    /// # Errors
    /// MOVED: the object is sealed. Errors of the local file system.
    pub fn attr(&self, object: Fid) -> Result<ObjectAttr> {
        let attr = match self.files.metadata(object)? {
            Some(found) => ObjectAttr { size: found.len, blocks: found.blocks512, mtime: Some(found.mtime) },
            None => ObjectAttr::default(),
        };
        self.check_unsealed([object])?;
        Ok(attr)
    }

    /// Returns what is stored of `objects`, in their order, also of sealed ones. A lost object
    /// counts as a missing one: the scrub finds it.
    pub fn stored(&self, objects: &[Fid]) -> Vec<StoredObject> {
        let stored = |&object: &Fid| {
            let size = self.files.metadata(object).ok().flatten().map_or(0, |found| found.len);
            StoredObject { size, owner: self.files.recorded_owner(object) }
        };
        objects.iter().map(stored).collect()
    }

    /// Whether the object has at least `end` bytes and no holes, so that overwriting them takes no
    /// space. False if that is not known.
    pub fn is_dense(&self, object: Fid, end: u64) -> bool {
        let found = self.attr(object).unwrap_or_default();
        found.size >= end && found.blocks.saturating_mul(512) >= found.size
    }
}
