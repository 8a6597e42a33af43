//! Why an MDT does not start.

use std::path::PathBuf;

use sheen_namespace::StoreError;
use sheen_rt::target_dir::DirError;
use sheen_wire::seq::MdtIndex;

use crate::identity::IdentityError;

/// Advice for an operator when the store of an MDT is lost. It names all targets: an MDT that is
/// older than its OSTs would allocate ids that existing objects have.
const RESTORE: &str = "restore the directories of all targets from one backup, or, if the files are not needed any more, \
    start a new file system in empty directories";

/// Why an MDT does not start.
#[derive(Debug, thiserror::Error)]
pub enum MdtError {
    /// There are no sequences for an MDT of this index.
    #[error("MDT index {0} is too large; use one from 0 to {max}", max = MdtIndex::MAX)]
    Index(u32),
    /// Another process serves the directory, or the local file system returned an error.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The directory holds another target, or its identity file is damaged.
    #[error("cannot serve {path}: {error}")]
    Identity {
        /// The directory.
        path: PathBuf,
        /// The cause.
        error: IdentityError,
    },
    /// The directory is not empty and holds no MDT.
    #[error("{0} is not empty and holds no MDT; name an empty directory, or the one of the MDT")]
    Foreign(PathBuf),
    /// The directory holds an MDT without its store.
    #[error("{0} is missing, and with it all names and layouts of the file system; nothing was changed: {RESTORE}")]
    StoreMissing(PathBuf),
    /// The store of an MDT that was formatted has no bytes.
    #[error("{0} has 0 bytes: all names and layouts of the file system are lost; nothing was changed: {RESTORE}")]
    StoreEmpty(PathBuf),
    /// The store is damaged.
    #[error(
        "{path} is damaged ({error}); the MDT is not started: {RESTORE}. Without a backup, `sheen fsck --salvage` may save the names"
    )]
    StoreDamaged {
        /// The store's file.
        path: PathBuf,
        /// The damage.
        error: StoreError,
    },
    /// The store cannot be used.
    #[error("cannot open {path}: {error}")]
    Store {
        /// The store's file.
        path: PathBuf,
        /// The cause.
        error: StoreError,
    },
}

impl MdtError {
    /// Makes the error of a store's file.
    pub(crate) fn of_store(path: PathBuf, error: StoreError) -> MdtError {
        if error.is_damage() { MdtError::StoreDamaged { path, error } } else { MdtError::Store { path, error } }
    }
}
