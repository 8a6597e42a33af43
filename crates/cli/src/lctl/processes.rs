//! The processes of this machine, as the commands see them.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use sheen_control::{Reply, Request, Silent, ask_all};

/// Processes that can be queried. A trait, so that tests need no processes.
pub trait Processes {
    /// Sends a request to all processes that this user controls. Returns the replies of those that
    /// answer.
    fn ask(&self, request: &Request) -> Vec<Reply>;

    /// Sends a request to the processes of which this user may only read public parameters. Returns
    /// the replies of those that answer.
    fn ask_public(&self, _request: &Request) -> Vec<Reply> {
        Vec::new()
    }

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

/// The processes behind control sockets and public sockets.
///
/// A process that has not answered once is not queried again by the same command: a command that
/// sends several requests waits for it and reports it once.
pub struct Running<F> {
    sockets: F,
    public: fn() -> Vec<PathBuf>,
    greeting: Duration,
    silent: RefCell<Vec<Silent>>,
    denied: Cell<bool>,
    is_closed: fn() -> bool,
}

impl<F: Fn() -> Vec<PathBuf>> Running<F> {
    /// Creates the set of processes behind the sockets that `sockets` finds, anew for each request.
    /// `greeting`: time limit for the greeting of a process.
    pub fn new(sockets: F, greeting: Duration) -> Running<F> {
        let (silent, denied) = (RefCell::default(), Cell::default());
        Running { sockets, public: Vec::new, greeting, silent, denied, is_closed: || false }
    }

    /// Sets how to find the public sockets.
    pub fn with_public(self, public: fn() -> Vec<PathBuf>) -> Running<F> {
        Running { public, ..self }
    }

    /// Sets how to find out whether there may be sockets that `sockets` cannot see.
    pub fn with_closed(self, is_closed: fn() -> bool) -> Running<F> {
        Running { is_closed, ..self }
    }

    fn ask_at(&self, mut sockets: Vec<PathBuf>, request: &Request) -> Vec<Reply> {
        let mut silent = self.silent.borrow_mut();
        sockets.retain(|socket| silent.iter().all(|s| s.socket != *socket));
        let asked = ask_all(&sockets, request, self.greeting);
        silent.extend(asked.silent);
        self.denied.set(self.denied.get() || asked.denied > 0);
        asked.replies
    }
}

impl<F: Fn() -> Vec<PathBuf>> Processes for Running<F> {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        self.ask_at((self.sockets)(), request)
    }

    fn ask_public(&self, request: &Request) -> Vec<Reply> {
        self.ask_at((self.public)(), request)
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
