//! The directory of a target, which one process serves at a time.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::disk::{Disk, LockGuard};

/// The lock file in a target's directory.
pub const LOCK: &str = "lock";

/// The directory of keys in a server's directory.
pub const KEYS: &str = "keys";

/// The files of the protection of a directory on shared storage (the crate `failover`).
pub mod protection {
    /// Names the server that owns the directory, and is rewritten with each of its beats.
    pub const HEARTBEAT: &str = "heartbeat";
    /// Lock by which the servers of one host exclude each other.
    pub const LOCK: &str = "heartbeat.lock";
    /// By this file another server asks the owner to stop.
    pub const TAKEOVER: &str = "takeover";
    /// All of them.
    pub const FILES: [&str; 3] = [HEARTBEAT, LOCK, TAKEOVER];
}

/// Reason why the directory of a target cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// Another process serves it.
    #[error("{} is in use by another process; stop that one first", .0.display())]
    InUse(PathBuf),
    /// The local file system returned an error.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Creates the directory if it is missing, and takes its lock.
///
/// # Errors
/// As [`DirError`].
pub fn lock_dir(disk: &Disk, dir: &Path) -> Result<LockGuard, DirError> {
    let io = |error| DirError::Io { path: dir.into(), error };
    disk.create_dir_all(dir).map_err(io)?;
    disk.try_lock(dir.join(LOCK)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => DirError::InUse(dir.into()),
        _ => io(error),
    })
}

/// Makes the names in a new directory durable, and the directory's own name in its parent.
///
/// # Errors
/// [`DirError::Io`].
pub async fn sync_names(disk: &Disk, dir: &Path) -> Result<(), DirError> {
    let io = |path: &Path, error| DirError::Io { path: path.into(), error };
    disk.sync_dir(dir).await.map_err(|e| io(dir, e))?;
    let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) else { return Ok(()) };
    match disk.sync_dir(parent).await {
        // The parent may be searchable but not readable. Then its owner has to make the name
        // durable.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|e| io(parent, e)),
    }
}
