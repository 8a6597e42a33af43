//! Which thread does the work of a request.
//!
//! The thread that read the request polls its future once. Over `lo` it is done then, and the same thread answers: no
//! wake-up, no other thread. Where it pends, waiting for a server over `tcp`, it moves to the runtime and the thread takes
//! the kernel's next request; so the number of threads bounds nothing but the work that is really done at once.
//!
//! A signal makes the kernel send INTERRUPT. Programs get signals all the time (Go's runtime sends its own threads SIGURG),
//! and an operation that would be done in a moment must not fail for that; but a process that waits for a dead server must
//! be killable. So an interrupted request is given up, with EINTR, only when it is still not done [`INTERRUPT_GRACE`] later.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_client::{Client, OpenDir, OpenFile};
use sheen_fuse::{abi::flags::init, Filesystem, InitConfig, Reply, Request};
use sheen_rt::Rt;
use sheen_wire::{Errno, Result};
use tokio::sync::oneshot;

use crate::{
    answer::{self, Answer},
    handles::Handles,
    ops,
};

/// How long an interrupted request may go on before it is given up.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that take requests from the kernel.
    pub threads: u32,
    /// Largest read or write of one request, in bytes; the kernel may allow less.
    pub max_write_bytes: u32,
    /// Whether other users than the one who mounts may use the mount.
    pub allow_other: bool,
    /// Device files and set-user-id bits count; root alone may mount so.
    pub privileged: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Let the kernel ask for attributes with the entries of a directory. Off until it may keep them for a while.
    pub readdir_plus: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { threads: 4, max_write_bytes: 1 << 20, allow_other: false, privileged: false, read_only: false, readdir_plus: false }
    }
}

/// What the kernel talks to.
pub struct Face(Arc<Inner>);

/// What the operations use.
pub struct Inner {
    pub rt: Rt,
    pub client: Arc<Client>,
    pub files: Handles<OpenFile>,
    pub dirs: Handles<OpenDir>,
    options: Options,
    /// Requests that moved to the runtime, by their number; the sender ends the wait of an interrupted one. Bounded by the
    /// kernel's own limit of requests under way.
    waiting: Mutex<FxHashMap<u64, oneshot::Sender<()>>>,
}

type Work = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

impl Face {
    /// A face for `client`.
    pub fn new(rt: Rt, client: Arc<Client>, options: Options) -> Face {
        Face(Arc::new(Inner {
            rt,
            client,
            files: Handles::new(),
            dirs: Handles::new(),
            options,
            waiting: Mutex::new(FxHashMap::default()),
        }))
    }
}

impl Filesystem for Face {
    fn init(&self, config: &mut InitConfig) {
        if !self.0.options.readdir_plus {
            config.disable(init::DO_READDIRPLUS | init::READDIRPLUS_AUTO);
        }
    }

    fn request(&self, request: Request, reply: Reply) {
        let unique = request.header.unique;
        let mut work: Work = Box::pin(ops::run(self.0.clone(), request));
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => answer::send(outcome, reply),
            Poll::Pending => self.0.go_on(unique, work, reply),
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        match self.0.waiting.lock().remove(&unique) {
            Some(sender) => sender.send(()).is_ok(),
            None => false,
        }
    }

    fn destroy(&self) {}
}

impl Inner {
    /// Lets the runtime finish what the thread began.
    fn go_on(self: &Arc<Inner>, unique: u64, work: Work, reply: Reply) {
        let (sender, interrupted) = oneshot::channel();
        self.waiting.lock().insert(unique, sender);
        let me = self.clone();
        let _detached = self.rt.spawn("fuse request", async move {
            let outcome = me.until_done_or_given_up(work, interrupted).await;
            me.waiting.lock().remove(&unique);
            answer::send(outcome, reply);
        });
    }

    async fn until_done_or_given_up(&self, mut work: Work, interrupted: oneshot::Receiver<()>) -> Result<Answer> {
        tokio::select! {
            biased;
            outcome = &mut work => return outcome,
            Ok(()) = interrupted => {}
        }
        match self.rt.timeout(INTERRUPT_GRACE, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Errno::EINTR),
        }
    }
}
