//! Ctrl-C and SIGTERM: an interrupted measurement stops everything that it has started.
//!
//! The signal handler itself cleans up nothing. It kills the workers, so that every wait for them
//! fails. The program then cleans up through `Drop`, as after any failure. A second signal ends the
//! process at once.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WORKERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Starts to listen for signals. To be called once, before anything is started.
pub fn listen() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(_entered);
    let next = async move || {
        tokio::select! {
            biased;
            _ = int.recv() => {}
            _ = term.recv() => {}
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait(next)))?;
    Ok(())
}

async fn wait(mut next: impl AsyncFnMut()) {
    next().await;
    INTERRUPTED.store(true, SeqCst);
    eprintln!("interrupted: cleaning up (a second signal exits at once and leaves everything behind)");
    for &pid in workers().iter() {
        kill(pid, Signal::KILL);
    }
    next().await;
    std::process::exit(130);
}

/// Returns an error if the user has interrupted the program. To be called between steps.
pub fn check() -> io::Result<()> {
    if INTERRUPTED.load(SeqCst) { Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")) } else { Ok(()) }
}

/// Registers a worker that has started.
pub fn worker_started(pid: u32) {
    workers().insert(pid);
}

/// Removes a worker before it is reaped, because its process id may then be reused.
pub fn worker_ending(pid: u32) {
    workers().remove(&pid);
}

/// Sends a signal to a process that this program has started, if it still exists.
pub fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn workers() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}
