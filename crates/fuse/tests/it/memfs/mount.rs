//! A mounted [`MemFs`] with a guard against hanging tests.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::SeqCst, mpsc},
    thread,
    time::{Duration, Instant},
};

use sheen_fuse::*;

use super::{super::TRANSPORT, MemFs};

/// Time after which a hanging mount is aborted, so that the test run does not hang.
pub const GUARD: Duration = Duration::from_secs(240);
/// Time limit for events that should happen at once: longer than any busy machine takes.
pub const SOON: Duration = Duration::from_secs(60);

pub struct Mounted {
    pub fs: Arc<MemFs>,
    pub session: Arc<Session>,
    pub root: PathBuf,
    _dir: tempfile::TempDir,
    _guard: mpsc::Sender<()>,
}

impl Mounted {
    pub fn with(fs: MemFs, options: SessionOptions) -> Option<Mounted> {
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(fs);
        let options = SessionOptions { io_uring: TRANSPORT, ..options };
        let session = match Session::mount(MountOptions::new(dir.path(), "memfs"), options, fs.clone()) {
            Ok(session) => Arc::new(session),
            Err(
                e @ (MountError::Device(_)
                | MountError::Kernel { .. }
                | MountError::NoHelper
                | MountError::Helper(_)
                | MountError::IoUring(_)),
            ) => {
                eprintln!("skipped: {e}");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let (guard, guarded) = mpsc::channel::<()>();
        let watched = session.clone();
        thread::spawn(move || {
            if guarded.recv_timeout(GUARD) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the mount hangs: aborting it");
                let _ = watched.abort();
                let _ = watched.unmount();
            }
        });
        Some(Mounted { fs, root: session.mountpoint().into(), session, _dir: dir, _guard: guard })
    }

    pub fn new(config: fn(&mut InitConfig)) -> Option<Mounted> {
        Mounted::with(MemFs::new(config), SessionOptions::default())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn saw(&self, op: &str) -> bool {
        self.count(op) > 0
    }

    /// Returns the number of requests of an operation so far.
    pub fn count(&self, op: &str) -> u64 {
        self.fs.state().ops.get(op).copied().unwrap_or(0)
    }

    pub fn notifier(&self) -> &Notifier {
        &self.fs.started.get().unwrap().1
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = self.session.unmount();
        let ended = self.session.join_timeout(SOON);
        if !thread::panicking() {
            unmounted.unwrap();
            assert!(ended, "workers still run after the unmount");
            assert!(self.fs.destroyed.load(SeqCst));
            self.fs.held.lock().unwrap().clear();
            self.fs.parked.lock().unwrap().clear();
            assert_eq!(self.session.stats().ring_entries_in_use, 0, "no entry is lost");
        }
    }
}

pub fn plain(_: &mut InitConfig) {}

pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("must fail").raw_os_error().unwrap_or(0)
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < SOON, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
