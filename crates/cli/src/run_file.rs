//! `run.json`: who serves a directory right now. A process holds a lock on it for as long as it
//! lives, so that a killed one is told from a living one without believing a pid that may long
//! belong to another program.

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

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The process.
    pub pid: u32,
    /// File system.
    pub fsname: String,
    /// NID of the MGS: what `sheen mount` takes before `:/fsname`.
    pub mgs: String,
    /// Where this process mounted it, if it did.
    pub mount: Option<PathBuf>,
    /// OSTs that it serves.
    pub osts: u32,
    /// When it was ready, in seconds since 1970.
    pub since: u64,
}

impl Running {
    /// What `sheen mount` takes.
    pub fn source(&self) -> String {
        format!("{}:/{}", self.mgs, self.fsname)
    }

    /// Where this process has it mounted still: somebody may have unmounted it, or have mounted
    /// another one there.
    pub fn mounted(&self) -> Option<&Path> {
        let at = self.mount.as_deref()?;
        mounted_from(at).is_some_and(|source| source == self.source()).then_some(at)
    }
}

/// The lock of a serving process; lost with the process.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// Takes the lock, or says who has it.
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
            Err(_) => Err(Failure::new(format!("{} is served by another process", path.display()))
                .advise("`sheen status` shows it, `sheen down` ends it")),
        }
    }

    /// Says what is served.
    pub fn announce(&mut self, running: &Running) -> Result {
        let text = serde_json::to_vec_pretty(running).context("cannot describe this process")?;
        self.file.set_len(0).context(self.path.display())?;
        self.file.rewind().context(self.path.display())?;
        self.file.write_all(&text).context(self.path.display())
    }

    /// The process ends in order: nothing is served any more.
    pub fn release(self) {
        let _ = self.file.set_len(0);
    }
}

/// Whether a directory is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// By nobody.
    Down,
    /// By a process that is not ready yet, or is just ending.
    Changing,
    /// By this process.
    Up(Running),
}

/// Whether the directory whose file this is is served.
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
    fn a_served_directory_is_known_while_the_lock_lives() {
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
