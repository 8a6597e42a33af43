//! All facts about this machine, each read within a time limit.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    ask, directory::Directory, fuse::Fuse, keys::Keys, limits::Limits, memory::Memory, mounts::Mounts,
    network::Network, processes::Processes, processor::Processor, read, tools::Tools,
};
use crate::time_limits::scaled;

/// Time limit for all facts.
const LIMIT: Duration = Duration::from_secs(1);
/// Time limit for answers of processes. It is shorter, so that those that answer are not lost.
const ASK_LIMIT: Duration = Duration::from_millis(800);

/// The facts. `None`: they could not be read within the time limit.
#[derive(Clone, Debug)]
pub struct Facts {
    /// FUSE.
    pub fuse: Option<Fuse>,
    /// Limits of processes.
    pub limits: Option<Limits>,
    /// The network.
    pub network: Option<Network>,
    /// The processors.
    pub processor: Processor,
    /// Memory.
    pub memory: Memory,
    /// Keys.
    pub keys: Option<Keys>,
    /// The directory of a file system or server; `Some(None)`: there is none.
    pub directory: Option<Option<Directory>>,
    /// Sheen's processes.
    pub processes: Option<Processes>,
    /// Names of the program.
    pub tools: Option<Tools>,
}

impl Facts {
    /// Reads the facts. `dir`: the absolute path of a directory of a file system or server.
    pub fn read(dir: Option<PathBuf>) -> Facts {
        let (mounts, start) = (Arc::new(Mounts::read()), Instant::now());
        let (asked, end) = (start + scaled(ASK_LIMIT), start + scaled(LIMIT));
        let of_keys = dir.clone();
        let fuse = Later::start(&mounts, read::fuse);
        let limits = Later::start(&mounts, |_| read::limits());
        let network = Later::start(&mounts, |mounts| read::network(&ask::pids(mounts)));
        let keys = Later::start(&mounts, move |mounts| read::keys(mounts, of_keys.as_deref()));
        let directory = Later::start(&mounts, move |mounts| read::directory(mounts, dir));
        let processes = Later::start(&mounts, move |mounts| ask::processes(mounts, asked));
        let tools = Later::start(&mounts, read::tools);
        Facts {
            processor: read::processor(),
            memory: read::memory(),
            fuse: fuse.get(end),
            limits: limits.get(end),
            network: network.get(end),
            keys: keys.get(end),
            directory: directory.get(end),
            processes: processes.get(end),
            tools: tools.get(end),
        }
    }
}

/// A value that another thread reads. The thread ends with the process at the latest.
struct Later<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Later<T> {
    /// Starts to read the value.
    fn start(mounts: &Arc<Mounts>, read: impl FnOnce(&Mounts) -> T + Send + 'static) -> Later<T> {
        let ((send, receive), mounts) = (mpsc::channel(), mounts.clone());
        // Without a thread there is no value. It is not needed any more if the channel is closed.
        let _ = thread::Builder::new().spawn(move || drop(send.send(read(&mounts))));
        Later(receive)
    }

    /// Returns the value. `None`: it was not there before `end`.
    fn get(self, end: Instant) -> Option<T> {
        self.0.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_is_never_read_does_not_block() {
        let mounts = Arc::new(Mounts::read());
        let (release, wait) = mpsc::channel::<()>();
        let never = Later::start(&mounts, move |_| wait.recv().is_ok());
        assert_eq!(never.get(Instant::now()), None);
        drop(release);
        let end = Instant::now() + Duration::from_secs(600);
        assert_eq!(Later::start(&mounts, |_| 7).get(end), Some(7));
    }
}
