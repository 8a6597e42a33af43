//! Requests to the MDT that change the mirrors of a file.

use std::path::Path;

use sheen_wire::{
    Result,
    mirror::{Change, XATTR},
};

use crate::file_system::FileSystem;

/// Sends a change of mirrors to the MDT.
///
/// # Errors
/// ENOTTY: the file is not on a Sheen mount. Otherwise the errno of the MDT.
pub fn change(fs: &dyn FileSystem, path: &Path, change: &Change) -> Result<()> {
    let path = fs.resolve(path)?;
    fs.fid(&path)?;
    fs.set(&path, XATTR, &change.encode()?, false)
}
