//! Which thread does the work of a request.
//!
//! The thread that read the request polls its future once. Over `lo` it is done then, and the same thread answers: no
//! wake-up, no other thread. Where it pends, waiting for a server over `tcp`, it stays where it is until the answer comes, then
//! moves to the runtime ([`parked`]), and the thread takes the kernel's next request; so the number of threads bounds nothing
//! but the work that is really done at once.
//!
//! A signal makes the kernel send INTERRUPT. Programs get signals all the time, and on a local file system none but a deadly one
//! ends an operation; but a process that waits for a dead server must be killable. So an interrupt is taken as a reason to look,
//! each [`INTERRUPT_GRACE`], whether the process is dying. If it is, the kernel is answered EINTR and the work goes on to its end
//! without anybody waiting: dropped half way, a write could still land on what is written after it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_client::{Client, OpenDir, OpenFile};
use sheen_fuse::{Filesystem, InitConfig, Reply, Request, abi::flags::init};
use sheen_rt::Rt;
use sheen_wire::{Errno, Result};
use tokio::sync::oneshot;

use crate::{
    answer::{self, Answer},
    handles::Handles,
    ops, parked,
};

/// How often it is looked whether whoever waits for an interrupted request is dying.
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
    /// Set-user-id bits count; root alone may mount so.
    pub suid: bool,
    /// Device files work; root alone may mount so.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Reading does not ask for access times.
    pub noatime: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Let the kernel ask for attributes with the entries of a directory. Off until it may keep them for a while.
    pub readdir_plus: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 4,
            max_write_bytes: 1 << 20,
            allow_other: false,
            suid: false,
            dev: false,
            exec: true,
            noatime: false,
            read_only: false,
            readdir_plus: false,
        }
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
    /// Requests that wait, by their number; the sender ends the wait of an interrupted one. Bounded by the kernel's own limit of
    /// requests under way.
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
        let (unique, pid) = (request.header.unique, request.header.pid);
        let mut work: Work = Box::pin(ops::run(self.0.clone(), request));
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => answer::send(outcome, reply),
            Poll::Pending => self.0.go_on(unique, pid, work, reply),
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
    fn go_on(self: &Arc<Inner>, unique: u64, pid: u32, work: Work, reply: Reply) {
        let (sender, interrupted) = oneshot::channel();
        self.waiting.lock().insert(unique, sender);
        let me = self.clone();
        let rest = async move {
            let mut work = work;
            let outcome = me.until_done_or_killed(&mut work, pid, interrupted).await;
            me.waiting.lock().remove(&unique);
            match outcome {
                Some(outcome) => answer::send(outcome, reply),
                None => {
                    answer::send(Err(Errno::EINTR), reply);
                    me.take_back(work.await).await;
                }
            }
        };
        parked::go_on(&self.rt, "fuse request", Box::pin(rest));
    }

    /// What the work comes to; `None` if its process is dying and cannot wait for it any longer.
    async fn until_done_or_killed(
        &self,
        work: &mut Work,
        pid: u32,
        interrupted: oneshot::Receiver<()>,
    ) -> Option<Result<Answer>> {
        tokio::select! {
            biased;
            outcome = &mut *work => return Some(outcome),
            Ok(()) = interrupted => {}
        }
        loop {
            if let Ok(outcome) = self.rt.timeout(INTERRUPT_GRACE, &mut *work).await {
                return Some(outcome);
            }
            if sheen_rt::proc::is_dying(pid) {
                return None;
            }
        }
    }

    /// Closes what was opened for a process that is no more: the kernel does not know of it and will not.
    async fn take_back(&self, outcome: Result<Answer>) {
        let closed = match outcome {
            Ok(Answer::Open { fh, .. } | Answer::Create { fh, .. }) => match self.files.remove(fh) {
                Some(file) => self.client.release(file).await,
                None => Ok(()),
            },
            Ok(Answer::OpenDir { fh }) => match self.dirs.remove(fh) {
                Some(dir) => self.client.releasedir(dir).await,
                None => Ok(()),
            },
            _ => Ok(()),
        };
        if let Err(e) = closed {
            tracing::debug!("closing what a killed process had opened: {e}");
        }
    }
}
