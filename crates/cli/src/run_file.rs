//! `run.json`: the process that serves a directory at present.
//!
//! The process holds a lock on the file while it lives. The lock tells a live process from a killed
//! one. The pid in the file cannot: it may since belong to another program.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    commands::umount::mounted_from,
    error::{Context, Failure, Result},
};

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The process.
    pub pid: u32,
    /// File system.
    pub fsname: String,
    /// NID of the MGS: what `sheen mount` takes before `:/fsname`.
    pub mgs: String,
    /// Where this process mounted the file system, if it did.
    pub mount: Option<PathBuf>,
    /// OSTs that it serves.
    pub osts: u32,
    /// Time at which it became ready, in seconds since 1970.
    pub since: u64,
}

impl Running {
    /// Returns the source argument of `sheen mount`.
    pub fn source(&self) -> String {
        format!("{}:/{}", self.mgs, self.fsname)
    }

    /// Returns the mount point if the mount of this process is still there. A user may have
    /// unmounted it, or mounted another file system there.
    pub fn mounted(&self) -> Option<&Path> {
        let at = self.mount.as_deref()?;
        mounted_from(at).is_some_and(|source| source == self.source()).then_some(at)
    }
}

/// The lock of a serving process. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// Takes the lock. Fails if another process holds it.
    pub fn take(path: &Path) -> Result<RunLock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .context(format!("cannot open {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(RunLock { file, path: path.to_owned() }),
            Err(_) => Err(Failure::new(format!("another process holds the lock on {}", path.display()))
                .advise("`sheen status` shows that process, `sheen down` stops it")),
        }
    }

    /// Writes what this process serves into the file.
    pub fn announce(&mut self, running: &Running) -> Result {
        let text = serde_json::to_vec_pretty(running).context("cannot describe this process")?;
        self.file.set_len(0).context(self.path.display())?;
        self.file.rewind().context(self.path.display())?;
        self.file.write_all(&text).context(self.path.display())
    }

    /// Empties the file: the process ends in order and no longer serves anything.
    pub fn release(self) {
        let _ = self.file.set_len(0);
    }
}

/// The state of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No process serves it.
    Down,
    /// A process that serves it is starting or stopping.
    Changing,
    /// This process serves it.
    Up(Running),
}

/// Returns the state of the directory to which the `run.json` at `path` belongs.
pub fn state(path: &Path) -> Result<State> {
    let Ok(mut file) = File::open(path) else { return Ok(State::Down) };
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(State::Down);
    }
    let mut text = String::new();
    file.read_to_string(&mut text).context(path.display())?;
    Ok(serde_json::from_str(&text).map_or(State::Changing, State::Up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_state_follows_the_lock_of_the_serving_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        assert_eq!(state(&path).unwrap(), State::Down);
        let mut lock = RunLock::take(&path).unwrap();
        assert_eq!(state(&path).unwrap(), State::Changing);
        let me =
            Running { pid: 1, fsname: "sheen".into(), mgs: "127.0.0.1@tcp".into(), mount: None, osts: 4, since: 0 };
        lock.announce(&me).unwrap();
        assert_eq!(state(&path).unwrap(), State::Up(me));
        assert!(RunLock::take(&path).is_err());
        drop(lock);
        assert_eq!(state(&path).unwrap(), State::Down);
    }
}
