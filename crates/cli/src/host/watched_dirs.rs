//! The directories of the targets that a process serves. When one of them is removed, the process
//! ends: a target without its directory loses writes and reads its objects as empty.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::{OpenDir, Rt};

use crate::error::{Context, Result};

/// Interval between two checks of the directories.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The directories that are served.
#[derive(Default)]
pub struct WatchedDirs(Mutex<Vec<WatchedDir>>);

/// A directory that is served.
struct WatchedDir {
    path: PathBuf,
    dir: OpenDir,
}

impl WatchedDirs {
    /// Adds a directory.
    pub fn add(&self, rt: &Rt, path: &Path) -> Result {
        let dir = rt.disk().open_dir(path).context(format!("cannot open {}", path.display()))?;
        self.0.lock().push(WatchedDir { path: path.to_owned(), dir });
        Ok(())
    }

    /// Waits until a directory is removed. Returns its path.
    pub async fn removed(&self, rt: &Rt) -> PathBuf {
        loop {
            rt.sleep(CHECK_INTERVAL).await;
            if let Some(path) = self.first_removed() {
                return path;
            }
        }
    }

    fn first_removed(&self) -> Option<PathBuf> {
        let watched = self.0.lock();
        watched.iter().find(|watched| watched.dir.is_removed()).map(|watched| watched.path.clone())
    }
}
