//! The state of a migration that an open file remembers.

use sheen_wire::{Fid, Time};

/// A migration in progress, stored in the open file.
#[derive(Debug)]
pub(crate) struct Migration {
    /// All objects with their data versions. For a mirrored file also its own FID, with the
    /// generation of its layout.
    pub versions: Vec<(Fid, u64)>,
    /// Last modification time of the file.
    pub mtime: Time,
}
