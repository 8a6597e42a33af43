//! The processes of this machine, as the commands see them.

use std::cell::RefCell;
use std::path::PathBuf;

use sheen_params::control::{self, Reply, Request, Silent};

/// Processes that can be asked. A trait, so that tests need none.
pub trait Processes {
    /// What those answer that do.
    fn ask(&self, request: &Request) -> Vec<Reply>;

    /// Those that have not answered a request.
    fn silent(&self) -> Vec<Silent>;
}

/// The processes behind control sockets.
///
/// A process that has not answered once is not asked again: a command that asks several times names
/// it once and waits for it once.
pub struct Running<F> {
    sockets: F,
    silent: RefCell<Vec<Silent>>,
}

impl<F: Fn() -> Vec<PathBuf>> Running<F> {
    /// Those whose sockets `sockets` finds, each time anew.
    pub fn new(sockets: F) -> Running<F> {
        Running { sockets, silent: RefCell::default() }
    }
}

impl<F: Fn() -> Vec<PathBuf>> Processes for Running<F> {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        let mut sockets = (self.sockets)();
        let mut silent = self.silent.borrow_mut();
        sockets.retain(|socket| silent.iter().all(|s| s.socket != *socket));
        let asked = control::ask_all(&sockets, request);
        silent.extend(asked.silent);
        asked.replies
    }

    fn silent(&self) -> Vec<Silent> {
        self.silent.borrow().clone()
    }
}
