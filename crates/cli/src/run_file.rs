//! `run.json`: the process that serves a directory at present.
//!
//! The process holds a lock on the file while it lives. So the lock shows whether the process still
//! lives. The pid in the file does not, because the kernel may have reused it.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sheen_wire::auth::Flavor;

use crate::{
    args::MungeArg,
    commands::umount::mounted_from,
    error::{Context, Failure, Result},
};

/// Maximum number of attempts to take the lock while commands hold it to look at the state. Each
/// command holds it for some microseconds.
const ATTEMPTS_MAX: u32 = 5000;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

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
    /// Whether it serves processes without a key.
    #[serde(default)]
    pub open: bool,
    /// Whether it accepts connections that another process passes on.
    #[serde(default)]
    pub relays: bool,
    /// To whom it issues keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub munge: Option<MungeArg>,
    /// Its audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<PathBuf>,
    /// Address of its metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// The least protection of its connections, if it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<Flavor>,
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
    /// Takes the lock. Fails if another process serves the directory. A command that looks at the
    /// state only delays it.
    pub fn take(path: &Path) -> Result<RunLock> {
        RunLock::take_with(path, || thread::sleep(PAUSE))
    }

    /// As [`RunLock::take`], and calls `pause` between two attempts.
    fn take_with(path: &Path, mut pause: impl FnMut()) -> Result<RunLock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .context(format!("cannot open {}", path.display()))?;
        for _ in 0..ATTEMPTS_MAX {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(RunLock { file, path: path.to_owned() });
            }
            if is_served(&file) {
                break;
            }
            pause();
        }
        Err(Failure::new(format!("another process holds the lock on {}", path.display()))
            .advise("`sheen status` shows that process, `sheen down` stops it"))
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

/// Whether a process holds the lock as [`RunLock`] does. Briefly takes a shared lock: several
/// commands may do so at the same time.
fn is_served(file: &File) -> bool {
    let free = flock(file, FlockOperation::NonBlockingLockShared).is_ok();
    if free {
        let _ = flock(file, FlockOperation::Unlock);
    }
    !free
}

/// Returns the state of the directory to which the `run.json` at `path` belongs.
pub fn state(path: &Path) -> Result<State> {
    let Ok(mut file) = File::open(path) else { return Ok(State::Down) };
    if !is_served(&file) {
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
        let me = Running {
            pid: 1,
            fsname: "sheen".into(),
            mgs: "127.0.0.1@tcp".into(),
            mount: None,
            osts: 4,
            open: false,
            relays: false,
            munge: None,
            audit: None,
            metrics: None,
            flavor: None,
            since: 0,
        };
        lock.announce(&me).unwrap();
        assert_eq!(state(&path).unwrap(), State::Up(me));
        assert!(RunLock::take(&path).is_err());
        drop(lock);
        assert_eq!(state(&path).unwrap(), State::Down);
    }

    #[test]
    fn run_lock_is_taken_after_a_command_has_looked_at_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let looking = File::create(&path).unwrap();
        flock(&looking, FlockOperation::NonBlockingLockShared).unwrap();
        let mut looks = Some(looking);
        let lock = RunLock::take_with(&path, || drop(looks.take())).unwrap();
        assert!(looks.is_none(), "it waited for the command");
        let mut pauses = 0;
        assert!(RunLock::take_with(&path, || pauses += 1).is_err());
        assert_eq!(pauses, 0, "it does not wait for a serving process");
        drop(lock);
    }
}
