//! Ctrl-C and SIGTERM: a measurement that is broken off takes down all that it brought up.
//!
//! Nothing is torn down in the signal's name: workers are killed, which fails whatever waits for
//! them, and the way out through `Drop` is the one that a failure takes too. A second signal ends
//! the process at once.

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

static ASKED: AtomicBool = AtomicBool::new(false);
static WORKERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Begins to listen for signals; to be called once, before anything is brought up.
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
    ASKED.store(true, SeqCst);
    eprintln!("breaking off; once more ends at once and leaves everything mounted");
    for &pid in workers().iter() {
        kill(pid, Signal::KILL);
    }
    next().await;
    std::process::exit(130);
}

/// An error if the user wants to break off: to be called between steps.
pub fn check() -> io::Result<()> {
    if ASKED.load(SeqCst) { Err(io::Error::new(io::ErrorKind::Interrupted, "broken off")) } else { Ok(()) }
}

/// A worker runs.
pub fn born(pid: u32) {
    workers().insert(pid);
}

/// A worker is about to be waited for; its pid may soon be another's.
pub fn gone(pid: u32) {
    workers().remove(&pid);
}

/// Sends a signal to a process that this program has started, if it still is there.
pub fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn workers() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}
