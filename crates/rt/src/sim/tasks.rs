//! Tasks and their wakers, as the world stores them.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

use parking_lot::Mutex;

/// Number of the future passed to `run`. It counts as a task on no host.
pub(crate) const MAIN: u64 = 0;
pub(crate) const MAIN_NAME: &str = "main";

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Numbers of the tasks that were woken.
#[derive(Default)]
pub(crate) struct Ready(pub(crate) Mutex<Vec<u64>>);

impl Ready {
    pub(crate) fn extend(&self, tasks: Vec<u64>) {
        self.0.lock().extend(tasks);
    }
}

pub(crate) struct TaskWaker {
    task: u64,
    pub(crate) queued: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    pub(crate) fn new(task: u64, ready: Arc<Ready>) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { task, queued: AtomicBool::new(false), ready })
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.0.lock().push(self.task);
        }
    }
}

pub(crate) struct Task {
    pub(crate) name: &'static str,
    pub(crate) host: u32,
    /// `None` while the task is being polled.
    pub(crate) future: Option<TaskFuture>,
    pub(crate) waker: Arc<TaskWaker>,
    pub(crate) aborted: bool,
}

#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) live: BTreeMap<u64, Task>,
    pub(crate) spawned: u64,
    /// Set when the simulation is being dropped: no more tasks are spawned.
    pub(crate) closed: bool,
}

impl Tasks {
    /// Marks a host's tasks as aborted, so that they are not polled again. Returns their numbers.
    pub(crate) fn kill_host(&mut self, host: u32) -> Vec<u64> {
        let mine = self.live.iter_mut().filter(|(_, t)| t.host == host);
        mine.map(|(&id, task)| {
            task.aborted = true;
            id
        })
        .collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.live.iter().map(|(id, t)| format!("{}@{}#{id}", t.name, t.host)).collect()
    }
}
