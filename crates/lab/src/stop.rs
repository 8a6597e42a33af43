//! Ctrl-C and SIGTERM: an interrupted measurement stops everything that it has started.
//!
//! The signal handler itself cleans up nothing. It kills the workers, so that every wait for them
//! fails. The program then cleans up through `Drop`, as after any failure. A second signal ends the
//! process at once.

use std::{
    collections::BTreeSet,
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();
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
    *lock(&INTERRUPTED) = true;
    CHANGED.notify_all();
    eprintln!("interrupted: cleaning up (a second signal exits at once and leaves everything behind)");
    for &pid in workers().iter() {
        kill(pid, Signal::KILL);
    }
    next().await;
    std::process::exit(130);
}

/// Returns an error if the user has interrupted the program. To be called between steps.
pub fn check() -> io::Result<()> {
    if *lock(&INTERRUPTED) { Err(interrupted()) } else { Ok(()) }
}

/// Pauses for a time, or until the user interrupts the program: then returns an error.
pub fn sleep(time: Duration) -> io::Result<()> {
    let waited = CHANGED.wait_timeout_while(lock(&INTERRUPTED), time, |interrupted| !*interrupted);
    if *waited.unwrap_or_else(PoisonError::into_inner).0 { Err(interrupted()) } else { Ok(()) }
}

fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
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

fn workers() -> MutexGuard<'static, BTreeSet<u32>> {
    lock(&WORKERS)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
