//! StatFs: this OST's share of the device of its directory.

use sheen_objects::sharing::Share;
use sheen_wire::{Result, StatFs};

use super::Store;

impl Store {
    /// Returns space and inodes of the OST. Space granted to clients is free, but not available.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn statfs(&self) -> Result<StatFs> {
        let device = self.home.held().statvfs()?;
        let granted = self.share.grants().granted_with_reserve().div_ceil(u64::from(device.bsize).max(1));
        Ok(self.share.of(StatFs { bavail: device.bavail.saturating_sub(granted), ..device }))
    }

    /// Returns the free bytes of the device, which all targets on it share.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn free(&self) -> Result<u64> {
        let device = self.home.held().statvfs()?;
        Ok(device.bavail.saturating_mul(device.bsize.into()))
    }

    /// The grants of all targets on the device, and this target's number among them.
    pub fn share(&self) -> &Share {
        &self.share
    }
}
