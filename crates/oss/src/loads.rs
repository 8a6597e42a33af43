//! The loads of a survey: their orders, and the state of the last one.

use std::{
    str::FromStr,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_wire::{Errno, Result, bulk::BULK_BYTES_MAX, echo::Shape};

/// Most threads of a load: half of the threads for blocking work, so that syncs of clients go on.
const THREADS_MAX: u32 = 32;
/// Smallest record in bytes.
const RECORD_MIN: u32 = 4096;

/// The loads of an OST.
#[derive(Debug, Default)]
pub struct Survey {
    stop: AtomicBool,
    bytes: AtomicU64,
    written: AtomicU64,
    state: Mutex<State>,
}

/// State of the last load.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Idle,
    Running(Load),
    Done(Load, Duration),
    Failed(Load, Errno),
}

/// Kind of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// Write the objects.
    Write,
    /// Read them.
    Read,
    /// Remove all objects.
    Remove,
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Its kind.
    pub test: Test,
    /// Its objects, threads and records.
    pub shape: Shape,
}

impl FromStr for Load {
    type Err = Errno;

    /// Reads `write|read OBJECTS THREADS RECORD BYTES`, or `remove`.
    fn from_str(text: &str) -> Result<Load> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| Errno::EINVAL);
        let small = |word: &str| word.parse::<u32>().map_err(|_| Errno::EINVAL);
        let (test, shape) = match words[..] {
            ["remove"] => (Test::Remove, Shape { objects: 1, threads: 1, record: RECORD_MIN, bytes: 0 }),
            [test @ ("write" | "read"), objects, threads, record, bytes] => {
                let (objects, threads, record) = (small(objects)?, small(threads)?, small(record)?);
                let test = if test == "write" { Test::Write } else { Test::Read };
                (test, Shape { objects, threads, record, bytes: number(bytes)? })
            }
            _ => return Err(Errno::EINVAL),
        };
        let right = (1..=shape.threads).contains(&shape.objects)
            && shape.threads <= THREADS_MAX
            && (RECORD_MIN..=BULK_BYTES_MAX as u32).contains(&shape.record);
        if right { Ok(Load { test, shape }) } else { Err(Errno::EINVAL) }
    }
}

impl Load {
    fn name(&self) -> &'static str {
        match self.test {
            Test::Write => "write",
            Test::Read => "read",
            Test::Remove => "remove",
        }
    }
}

impl Survey {
    /// Ends the load that runs.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    /// Returns the state as text: a line for each value.
    pub fn status(&self) -> String {
        let (state, load, took, error) = match *self.state.lock() {
            State::Idle => return "state: idle\n".into(),
            State::Running(load) => ("running", load, Duration::ZERO, None),
            State::Done(load, took) => ("done", load, took, None),
            State::Failed(load, errno) => ("failed", load, Duration::ZERO, Some(errno)),
        };
        let error = error.map_or_else(String::new, |errno| format!("error: {errno}\n"));
        format!(
            "state: {state}\ntest: {}\nbytes: {}\nmicroseconds: {}\n{error}",
            load.name(),
            self.bytes.load(Relaxed),
            took.as_micros()
        )
    }

    /// Returns the bytes of the objects, at most: those of the last write, until they are removed.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Whether the load should end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Counts transferred bytes.
    pub fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Ends a load: with the time that it took, or its error.
    pub fn end(&self, load: Load, result: Result<Duration>) {
        match load.test {
            Test::Write => self.written.store(self.bytes.load(Relaxed), Relaxed),
            Test::Read => {}
            Test::Remove => self.written.store(0, Relaxed),
        }
        *self.state.lock() = match result {
            Ok(took) => State::Done(load, took),
            Err(errno) => State::Failed(load, errno),
        };
    }

    /// Begins a load.
    ///
    /// # Errors
    /// EBUSY: one runs already.
    pub fn begin(&self, load: Load) -> Result<()> {
        let mut state = self.state.lock();
        if matches!(*state, State::Running(_)) {
            return Err(Errno::EBUSY);
        }
        self.stop.store(false, SeqCst);
        self.bytes.store(0, Relaxed);
        *state = State::Running(load);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_has_test_and_shape() {
        let shape = Shape { objects: 2, threads: 6, record: 4096, bytes: 61_440 };
        assert_eq!("write 2 6 4096 61440".parse::<Load>(), Ok(Load { test: Test::Write, shape }));
        // `sheen lab survey` has caches dropped by a read of nothing.
        let nothing = Shape { bytes: 0, ..shape };
        assert_eq!("read 2 6 4096 0".parse::<Load>(), Ok(Load { test: Test::Read, shape: nothing }));
        assert_eq!(nothing.records(5).count(), 0);
    }

    #[test]
    fn invalid_orders_are_refused() {
        for order in [
            "",
            "write",
            "erase 1 1 4096 4096",
            "write 0 1 4096 4096",
            "write 2 1 4096 4096",
            "write 1 33 4096 4096",
            "write 1 1 4095 4096",
            "read 1 1 16777217 4096",
            "read 1 1 4096 -1",
            "read 1 1 4096 4096 5",
        ] {
            assert_eq!(order.parse::<Load>(), Err(Errno::EINVAL), "{order}");
        }
        assert_eq!("remove".parse::<Load>().map(|load| load.test), Ok(Test::Remove));
    }
}
