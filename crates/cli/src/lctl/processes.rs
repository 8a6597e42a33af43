//! The processes of this machine, as the commands see them.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use sheen_control::{Reply, Request, Silent, ask_all};

/// Processes that can be queried. A trait, so that tests need no processes.
pub trait Processes {
    /// Sends a request to all processes. Returns the replies of those that answer.
    fn ask(&self, request: &Request) -> Vec<Reply>;

    /// Begins a command of the interactive mode: processes that did not answer the last one are
    /// queried again.
    fn begin_command(&self) {}

    /// Returns the processes that have not answered a request.
    fn silent(&self) -> Vec<Silent>;

    /// Whether there are processes that this user may not query.
    fn denied(&self) -> bool {
        false
    }
}

/// The processes behind control sockets.
///
/// A process that has not answered once is not queried again by the same command: a command that
/// sends several requests waits for it and reports it once.
pub struct Running<F> {
    sockets: F,
    greeting: Duration,
    silent: RefCell<Vec<Silent>>,
    denied: Cell<bool>,
    is_closed: fn() -> bool,
}

impl<F: Fn() -> Vec<PathBuf>> Running<F> {
    /// Creates the set of processes behind the sockets that `sockets` finds, anew for each request.
    /// `greeting`: time limit for the greeting of a process.
    pub fn new(sockets: F, greeting: Duration) -> Running<F> {
        Running { sockets, greeting, silent: RefCell::default(), denied: Cell::default(), is_closed: || false }
    }

    /// Sets how to find out whether there may be sockets that `sockets` cannot see.
    pub fn with_closed(self, is_closed: fn() -> bool) -> Running<F> {
        Running { is_closed, ..self }
    }
}

impl<F: Fn() -> Vec<PathBuf>> Processes for Running<F> {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        let mut sockets = (self.sockets)();
        let mut silent = self.silent.borrow_mut();
        sockets.retain(|socket| silent.iter().all(|s| s.socket != *socket));
        let asked = ask_all(&sockets, request, self.greeting);
        silent.extend(asked.silent);
        self.denied.set(self.denied.get() || asked.denied > 0);
        asked.replies
    }

    fn begin_command(&self) {
        self.silent.borrow_mut().clear();
        self.denied.set(false);
    }

    fn silent(&self) -> Vec<Silent> {
        self.silent.borrow().clone()
    }

    fn denied(&self) -> bool {
        self.denied.get() || (self.is_closed)()
    }
}
