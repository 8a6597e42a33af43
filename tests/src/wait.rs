//! Waiting in tests. Tests wait for an outcome and never for a fixed time, so that a slow machine
//! fails no test.
//!
//! `tidy` rejects other pauses and other time limits in tests.

use std::{
    fmt::Display,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Time after which an outcome counts as failed. It is generous, because a machine that runs
/// several suites at once is slow.
pub const EVENTUALLY: Duration = Duration::from_secs(60);

/// Pause between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `is_so` holds. Panics with `what` if it does not hold within [`EVENTUALLY`].
#[track_caller]
pub fn eventually(what: impl Display, mut is_so: impl FnMut() -> bool) {
    eventually_some(what, || is_so().then_some(()));
}

/// Waits until `look` returns a value, and returns it. Panics with `what` after [`EVENTUALLY`].
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

/// Runs an operation that must finish although a server is down. Panics with `what` if it does not
/// finish within [`EVENTUALLY`]. The operation's thread then stays behind.
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

/// Sleeps. For periods that the program itself counts (an age, an interval), or to pace a party of
/// a race. Correct only where a longer sleep changes nothing, because a slow machine sleeps longer.
pub fn let_pass(time: Duration) {
    thread::sleep(time);
}

/// Asserts that `operation` blocks: it has not returned after `for_a_while`. A slow machine cannot
/// fail this check, because there the operation takes even longer. Returns the thread. The caller
/// joins it after it has let the operation continue.
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
