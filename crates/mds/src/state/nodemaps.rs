//! The nodemaps, as the MGS reported them last.
//!
//! The MDT stores them in its directory. So they apply after a restart, too, if the MGS is stopped.
//! Before the MGS has reported some for the first time, only servers are served.

use std::{io, path::Path, sync::Arc};

use sheen_rt::Disk;
use sheen_wire::nodemap::Nodemaps;
use tokio::sync::watch;

/// File in the MDT's directory.
pub(crate) const FILE: &str = "nodemaps.json";

/// The present nodemaps. `None`: not known yet.
pub(crate) struct Present(watch::Sender<Option<Arc<Nodemaps>>>);

impl Present {
    /// Reads those that are stored in an MDT's directory.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn open(disk: &Disk, dir: &Path) -> io::Result<Present> {
        let stored = match disk.read(dir.join(FILE)) {
            Ok(bytes) => Some(Arc::new(serde_json::from_slice(&bytes)?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(Present(watch::Sender::new(stored)))
    }

    /// Waits until they are known.
    pub async fn known(&self) {
        if self.0.borrow().is_none() {
            // Boxed, because it is rare. The sender lives as long as this.
            let _ = Box::pin(self.0.subscribe().wait_for(Option::is_some)).await;
        }
    }

    /// Returns the present ones.
    pub fn get(&self) -> Arc<Nodemaps> {
        self.0.borrow().clone().unwrap_or_default()
    }

    /// Applies nodemaps from now on. Returns whether they differ from those before.
    pub fn set(&self, nodemaps: &Nodemaps) -> bool {
        self.0.send_if_modified(|present| {
            let differ = present.as_deref() != Some(nodemaps);
            if differ {
                *present = Some(Arc::new(nodemaps.clone()));
            }
            differ
        })
    }
}

/// Stores nodemaps in an MDT's directory.
///
/// # Errors
/// They cannot be written.
pub(crate) fn store(disk: &Disk, dir: &Path, nodemaps: &Nodemaps) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(nodemaps)?;
    bytes.push(b'\n');
    disk.write_atomic(dir.join(FILE), &bytes)
}
