//! Objects without a file that no layout has: a power failure has undone a part of their removal.

use std::io;

use sheen_wire::{Errno, Fid};

use super::Files;

impl Files {
    /// Records that an object without a file was removed: it is not lost. `file`: the file to which
    /// it belonged.
    ///
    /// # Errors
    /// ESTALE: the object has a file here, or belongs to another file. Errors of the local file
    /// system.
    pub fn forget_missing(&self, object: Fid, file: Fid) -> io::Result<()> {
        let shard = self.shard(object);
        let is_not_found = |e: io::Error| e.kind() == io::ErrorKind::NotFound;
        let is_missing = !shard.contains(&object) && self.disk.metadata(self.path(object)).is_err_and(is_not_found);
        // The MDT may have given the object to another file meanwhile.
        if !is_missing || self.accounting.index().read(object)?.file != file {
            return Err(io::Error::from_raw_os_error(Errno::ESTALE.0));
        }
        self.durable.remove(object)
    }
}
