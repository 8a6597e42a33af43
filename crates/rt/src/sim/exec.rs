//! The run loop, and the handles of tasks.
//!
//! The seed chooses among the ready tasks. As in the real runtime, the loop drops an aborted task,
//! not the task that aborts it. So destructors run while no caller holds a lock.

use std::{
    ops::Deref,
    pin::pin,
    sync::{Arc, Weak, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;

use super::{
    config::{SimConfig, SimError},
    host::Host,
    state::{Core, Event, State},
    tasks::{MAIN, MAIN_NAME, Task, TaskFuture, TaskWaker},
    trace::Note,
    world::World,
};
use crate::error::JoinError;

/// A simulation. Dereferences to its [`World`]. Dropping it drops its tasks.
pub struct Sim(World);

impl Deref for Sim {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let core = &self.0.0;
        // Tasks and core own each other, so the cycle is broken here. Destructors may call into the
        // core, so they run without its lock.
        let tasks = core.with(|s| {
            s.tasks.closed = true;
            std::mem::take(&mut s.tasks.live)
        });
        drop(tasks);
        let clutter = core.with(|s| (s.take_events(), std::mem::take(&mut s.net)));
        drop(clutter);
    }
}

impl Sim {
    /// Creates a world without hosts. The same seed and configuration always give the same run.
    pub fn new(seed: u64, config: SimConfig) -> Sim {
        Sim(World(Arc::new(Core::new(seed, config))))
    }

    /// Runs a future, which belongs to no host, and all tasks, until the future completes. Tasks
    /// that have not ended by then remain for the next `run`.
    ///
    /// # Errors
    /// The future cannot complete, or takes too long: see [`SimError`].
    ///
    /// # Panics
    /// If a task panics. The seed is printed.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, SimError> {
        let core = &self.0.0;
        let _announce = Announce(core);
        let mut future = pin!(future);
        let waker = TaskWaker::new(MAIN, core.ready.clone());
        waker.wake_by_ref();
        let mut polls = 0;
        loop {
            let Some(task) = core.choose() else {
                polls = 0;
                core.advance()?;
                continue;
            };
            polls += 1;
            if polls > core.with(|s| s.config.polls_per_instant_max) {
                return Err(core.livelock(task));
            }
            if task != MAIN {
                core.poll_task(task);
                continue;
            }
            core.with(|s| s.note(Note::Poll { task, name: MAIN_NAME }));
            waker.queued.store(false, Ordering::Release);
            if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker.clone()))) {
                return Ok(out);
            }
        }
    }
}

/// Prints the seed that reproduces a panic.
struct Announce<'a>(&'a Core);

impl Drop for Announce<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, at, lines) = self.0.with(|s| (s.seed, s.now, s.trace.lines()));
            lines.iter().for_each(|line| eprintln!("{line}"));
            eprintln!("simulation with seed {seed} panicked at {at:?}");
        }
    }
}

impl Core {
    /// Takes one of the ready tasks, chosen by the seed. The order in which they were woken has no
    /// influence: `tokio::sync::watch` wakes its receivers in an order that the seed does not
    /// control.
    fn choose(&self) -> Option<u64> {
        let n = self.ready.0.lock().len();
        if n == 0 {
            return None;
        }
        let i = if n == 1 { 0 } else { self.with(|s| s.rng.usize(0..n)) };
        let mut ready = self.ready.0.lock();
        ready.sort_unstable();
        Some(ready.remove(i))
    }

    fn advance(&self) -> Result<(), SimError> {
        self.with(|s| {
            let waiting = |s: &State| std::iter::once(MAIN_NAME.to_owned()).chain(s.tasks.names()).collect::<Vec<_>>();
            if !s.advance_clock() {
                return Err(SimError::Deadlock { at: s.now, waiting: waiting(s) });
            }
            s.execute_due();
            if s.elapsed() > s.config.time_max {
                return Err(SimError::TimeLimit { at: s.now, waiting: waiting(s) });
            }
            Ok(())
        })
    }

    fn livelock(&self, chosen: u64) -> SimError {
        let mut ready = self.ready.0.lock().clone();
        ready.push(chosen);
        ready.sort_unstable();
        ready.dedup();
        self.with(|s| {
            let name =
                |id: &u64| s.tasks.live.get(id).map_or(MAIN_NAME.to_owned(), |t| format!("{}@{}#{id}", t.name, t.host));
            SimError::Livelock { at: s.now, busy: ready.iter().map(name).collect() }
        })
    }

    fn poll_task(&self, id: u64) {
        let taken = self.with(|s| {
            let task = s.tasks.live.get_mut(&id)?;
            task.waker.queued.store(false, Ordering::Release);
            let (name, aborted, waker) = (task.name, task.aborted, task.waker.clone());
            let future = task.future.take()?;
            if aborted {
                s.tasks.live.remove(&id);
                s.note(Note::End { task: id, name });
            } else {
                s.note(Note::Poll { task: id, name });
            }
            Some((future, aborted, Waker::from(waker)))
        });
        // Here and below, a future is dropped only while the state is unlocked, because destructors
        // use the state.
        let Some((mut future, false, waker)) = taken else { return };
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let left = self.with(|s| {
            let Some(task) = s.tasks.live.get_mut(&id) else { return Some(future) };
            if !done && !task.aborted {
                task.future = Some(future);
                return None;
            }
            let name = task.name;
            s.tasks.live.remove(&id);
            s.note(Note::End { task: id, name });
            Some(future)
        });
        drop(left);
    }
}

impl State {
    /// Executes the planned events whose time has come.
    fn execute_due(&mut self) {
        while let Some(event) = self.take_due() {
            match event {
                Event::Timer(waker) => {
                    self.note(Note::Timer);
                    self.wakes.push(waker);
                }
                Event::Net(event) => self.net_event(event),
            }
        }
    }
}

impl Host {
    pub(crate) fn spawn<F>(&self, name: &'static str, future: F) -> Join<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let cell = Arc::new(Mutex::new(Cell::Running(None)));
        let finish = Finish(cell.clone());
        let future: TaskFuture = Box::pin(async move {
            // Captured first, so that `finish` is part of the future from the start and reports the
            // abort if the future is dropped unpolled.
            let finish = finish;
            let out = future.await;
            finish.set(Ok(out));
        });
        let (core, host) = (&self.core, self.id);
        let (task, refused) = core.with(|s| {
            if s.tasks.closed || s.host(host).life != self.life {
                return (MAIN, Some(future));
            }
            s.tasks.spawned += 1;
            let id = s.tasks.spawned;
            let waker = TaskWaker::new(id, core.ready.clone());
            s.wakes.push(Waker::from(waker.clone()));
            s.tasks.live.insert(id, Task { name, host, future: Some(future), waker, aborted: false });
            s.note(Note::Spawn { task: id, host, name });
            (id, None)
        });
        drop(refused);
        Join { cell, task, core: Arc::downgrade(core) }
    }
}

/// State of a task's result.
enum Cell<T> {
    Running(Option<Waker>),
    Done(Result<T, JoinError>),
    Taken,
}

/// The task's side of its result. If dropped without a result, it reports an abort.
struct Finish<T>(Arc<Mutex<Cell<T>>>);

impl<T> Finish<T> {
    fn set(&self, result: Result<T, JoinError>) {
        let mut cell = self.0.lock();
        if !matches!(*cell, Cell::Running(_)) {
            return;
        }
        let before = std::mem::replace(&mut *cell, Cell::Done(result));
        drop(cell);
        if let Cell::Running(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        self.set(Err(JoinError::Aborted));
    }
}

/// The join handle's side of a task's result.
pub(crate) struct Join<T> {
    cell: Arc<Mutex<Cell<T>>>,
    task: u64,
    core: Weak<Core>,
}

impl<T> Join<T> {
    pub(crate) fn abort(&self) {
        let Some(core) = self.core.upgrade() else { return };
        core.with(|s| {
            if let Some(task) = s.tasks.live.get_mut(&self.task) {
                task.aborted = true;
                let waker = Waker::from(task.waker.clone());
                s.wakes.push(waker);
            }
        });
    }

    pub(crate) fn is_finished(&self) -> bool {
        !matches!(*self.cell.lock(), Cell::Running(_))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let mut cell = self.cell.lock();
        match &mut *cell {
            Cell::Running(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => match std::mem::replace(&mut *cell, Cell::Taken) {
                Cell::Done(result) => Poll::Ready(result),
                _ => Poll::Pending, // polled again after it was ready, which is not allowed
            },
        }
    }
}
