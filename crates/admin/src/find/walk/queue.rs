//! The list of work that the threads of a walk share.

use std::{
    ffi::CString,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::{Condvar, Mutex};

use super::work::Work;

/// Most subtrees and batches that wait for a thread.
const WAITING_MAX: usize = 4096;

/// The shared list. It is last in, first out.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    more: Condvar,
    /// Number of threads that wait for work.
    idle: AtomicUsize,
    stopped: AtomicBool,
}

struct State<T> {
    waiting: Vec<Work<T>>,
    /// Number of threads that may still add work.
    busy: usize,
}

impl<T> Queue<T> {
    /// Creates the list for this many threads. The first root comes first.
    pub fn new(roots: Vec<CString>, threads: usize) -> Queue<T> {
        let root = |path| Work::Tree { path, kind: None, depth: 0 };
        let state = State { waiting: roots.into_iter().rev().map(root).collect(), busy: threads };
        Queue {
            state: Mutex::new(state),
            more: Condvar::new(),
            idle: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns the next piece of work for a thread that has finished its last one. `None`: the walk
    /// has stopped, or no thread can add work any more.
    pub fn next(&self) -> Option<Work<T>> {
        let mut state = self.state.lock();
        state.busy -= 1;
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(work) = state.waiting.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                self.more.notify_all();
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            self.more.wait(&mut state);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Puts work on the list. Returns the work if the list is full.
    pub fn offer(&self, work: Work<T>) -> Result<(), Work<T>> {
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            return Err(work);
        }
        state.waiting.push(work);
        drop(state);
        if self.has_idle_threads() {
            self.more.notify_one();
        }
        Ok(())
    }

    /// Whether a thread waits for work.
    pub fn has_idle_threads(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Counts out a thread that could not be started. Returns whether no thread is left for waiting
    /// work.
    pub fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.busy -= 1;
        self.more.notify_all();
        state.busy == 0 && !state.waiting.is_empty()
    }

    /// Ends the walk.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Takes the lock, so that no thread goes to sleep after it has read the old value.
        let _state = self.state.lock();
        self.more.notify_all();
    }

    /// Whether the walk has ended.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
