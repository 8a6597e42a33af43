//! Seek: the next data or hole of an object. Past its end everything is a hole; an object that does
//! not exist is empty.

use sheen_wire::{
    Fid, Result,
    ost::{OBJECT_SIZE_MAX, Seek},
};

use super::Store;

impl Store {
    /// Returns the first offset at or after `offset` that is data, or a hole. `None`: there is no
    /// more data.
    ///
    /// # Errors
    /// MOVED: the object is sealed. Errors of the local file system.
    pub fn seek(&self, object: Fid, offset: u64, what: Seek) -> Result<Option<u64>> {
        let beyond = match what {
            Seek::Data => None,
            Seek::Hole => Some(offset),
        };
        if offset >= OBJECT_SIZE_MAX {
            return Ok(beyond);
        }
        let found = match self.files.existing(object)? {
            Some(open) => open.file.seek(what, offset)?.or(beyond),
            None => beyond,
        };
        self.check_unsealed([object])?;
        Ok(found)
    }
}
