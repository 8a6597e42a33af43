//! The directories of the targets that a process serves. When one of them is removed, the process
//! ends: a target without its directory loses writes and reads its objects as empty.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sheen_rt::OpenDir;

use super::{Host, asked_to_end};
use crate::error::{Context, Failure, Result};

/// Interval between two checks of the directories.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A directory that is served.
pub(super) struct Held {
    path: PathBuf,
    dir: OpenDir,
}

impl Host {
    /// Makes [`Host::to_end`] watch this directory.
    pub(super) fn hold(&self, path: &Path) -> Result {
        let dir = self.rt.disk().open_dir(path).context(format!("cannot open {}", path.display()))?;
        self.held.lock().push(Held { path: path.to_owned(), dir });
        Ok(())
    }

    /// Waits for SIGTERM or SIGINT, upon which this process is to end.
    ///
    /// # Errors
    /// The directory of a target was removed.
    pub async fn to_end(&self) -> Result {
        let path = tokio::select! {
            asked = asked_to_end() => return asked,
            path = self.removed() => path,
        };
        let what = format!("{} was removed while it was served", path.display());
        tracing::error!("{what}: unmounting and stopping this process; restore the directory before the next start");
        Err(Failure::new(what))
    }

    /// Waits until a directory is removed. Returns its path.
    async fn removed(&self) -> PathBuf {
        loop {
            self.rt.sleep(LOOK_INTERVAL).await;
            if let Some(path) = self.first_removed() {
                return path;
            }
        }
    }

    fn first_removed(&self) -> Option<PathBuf> {
        let held = self.held.lock();
        held.iter().find(|held| held.dir.is_removed()).map(|held| held.path.clone())
    }
}
