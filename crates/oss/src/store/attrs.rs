//! Attrs: sizes, space and times of objects. One that does not exist has none of them.
//!
//! A file is not opened for this: most files of a tree are looked at by `stat` and nothing else.

use sheen_wire::{Fid, Result, ost::ObjectAttr};

use super::Store;

impl Store {
    /// The attributes of `objects`, in their order.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn attrs(&self, objects: &[Fid]) -> Result<Vec<ObjectAttr>> {
        objects.iter().map(|&object| self.attr(object)).collect()
    }

    /// The attributes of an object.
    ///
    /// # Errors
    /// What the local file system says. MOVED.
    pub fn attr(&self, object: Fid) -> Result<ObjectAttr> {
        let attr = match self.files.metadata(object)? {
            Some(found) => ObjectAttr { size: found.len, blocks: found.blocks512, mtime: Some(found.mtime) },
            None => ObjectAttr::default(),
        };
        self.check_open([object])?;
        Ok(attr)
    }

    /// Whether the object has at least `end` bytes and no holes, so that writing to these takes no
    /// space. False where that is not known.
    pub fn is_dense(&self, object: Fid, end: u64) -> bool {
        let found = self.attr(object).unwrap_or_default();
        found.size >= end && found.blocks.saturating_mul(512) >= found.size
    }
}
