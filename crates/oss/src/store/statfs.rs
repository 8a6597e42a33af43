//! StatFs: this OST's share of the device that its directory lies on.

use sheen_objects::sharing::Share;
use sheen_wire::{Result, StatFs};

use super::Store;

impl Store {
    /// Space and inodes of the OST. What is promised to clients is free, but not available.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn statfs(&self) -> Result<StatFs> {
        let device = self.home.held().statvfs()?;
        let promised = self.share.grants().set_aside().div_ceil(u64::from(device.bsize).max(1));
        Ok(self.share.of(StatFs { bavail: device.bavail.saturating_sub(promised), ..device }))
    }

    /// Bytes free on the device, for all that lie on it.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn free(&self) -> Result<u64> {
        let device = self.home.held().statvfs()?;
        Ok(device.bavail.saturating_mul(device.bsize.into()))
    }

    /// What the targets on the device promise, and this one's number among them.
    pub fn share(&self) -> &Share {
        &self.share
    }
}
