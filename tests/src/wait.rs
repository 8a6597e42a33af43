//! Waiting in tests: for an outcome and never for a fixed time, so that a slow machine fails no
//! test.
//!
//! `tidy` keeps other pauses and other upper limits of time out of the tests.

use std::{
    fmt::Display,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// After this long an outcome counts as never coming. Generous: a machine that runs several suites
/// at once is slow.
pub const EVENTUALLY: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `is_so` holds. Panics with `what` if it does not within [`EVENTUALLY`].
#[track_caller]
pub fn eventually(what: impl Display, mut is_so: impl FnMut() -> bool) {
    eventually_some(what, || is_so().then_some(()));
}

/// Waits until `look` finds something, and returns it.
#[track_caller]
pub fn eventually_some<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < EVENTUALLY, "not within {EVENTUALLY:?}: {what}");
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Runs an operation while a server is down, which stays down: it is answered all the same. Panics
/// with `what` if it is not within [`EVENTUALLY`]; its thread is then left behind.
#[track_caller]
pub fn while_down<T: Send + 'static>(what: impl Display, operation: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = mpsc::channel();
    let thread = thread::spawn(move || answer.send(operation()));
    match answered.recv_timeout(EVENTUALLY) {
        Ok(found) => found,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("waits for a server that is down: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("a thread that sent nothing has panicked"),
        },
    }
}

/// Lets time pass that the program itself counts (an age, a period), or paces a party of a race.
/// Sound only where more time changes nothing, for a slow machine takes more.
pub fn let_pass(time: Duration) {
    thread::sleep(time);
}

/// Asserts that `operation` waits: it has not returned after `for_a_while`. Sound on a slow
/// machine, too: there it waits all the more. Returns the thread, which the caller joins once the
/// operation may go on.
#[track_caller]
pub fn blocks<T: Send + 'static>(
    what: impl Display,
    for_a_while: Duration,
    operation: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let thread = thread::spawn(operation);
    thread::sleep(for_a_while);
    assert!(!thread.is_finished(), "does not wait: {what}");
    thread
}
