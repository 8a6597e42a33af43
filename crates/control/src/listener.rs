//! A socket that a process listens on, and the thread that accepts its connections.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::sockets::remove_stale;

/// Pause after a failed accept: the process may have no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket of this process. It is closed and removed when this is dropped, after the thread that
/// accepts its connections has ended.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The connections of a [`Listener`].
pub(crate) struct Accepts {
    listener: UnixListener,
    stop: Arc<AtomicBool>,
}

impl Accepts {
    /// Waits for the next connection. `None`: the listener was dropped.
    pub(crate) fn accept(&self) -> Option<UnixStream> {
        loop {
            let peer = self.listener.accept();
            if self.stop.load(Relaxed) {
                return None;
            }
            match peer {
                Ok((stream, _)) => return Some(stream),
                // Out of file descriptors: wait until some are closed, instead of spinning.
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }
}

impl Listener {
    /// Listens on `<pid>.sock` in `dir`, with this mode. Removes the sockets of processes that were
    /// killed. `serve` runs in a thread of its own.
    pub(crate) fn open(dir: &Path, mode: u32, serve: impl FnOnce(Accepts) + Send + 'static) -> io::Result<Listener> {
        remove_stale(dir);
        let path = dir.join(format!("{}.sock", std::process::id()));
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        let stop = Arc::new(AtomicBool::new(false));
        let accepts = Accepts { listener, stop: stop.clone() };
        let thread = thread::Builder::new().name("control".into()).spawn(move || serve(accepts))?;
        Ok(Listener { path, stop, thread: Some(thread) })
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // A connection wakes the thread that blocks in accept.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}
