//! StatFs: this OST's share of the device that its directory lies on.

use sheen_wire::{Result, StatFs};

use super::Store;

impl Store {
    /// Space and inodes of the OST.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn statfs(&self) -> Result<StatFs> {
        Ok(self.share.of(self.rt.disk().statvfs(self.home.dir())?))
    }
}
