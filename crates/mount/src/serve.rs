//! Request handling: which thread runs a request, and what an interrupt does.
//!
//! The thread that read the request polls its future once. Over `lo` the request is usually done
//! then, and the same thread replies, without a wake-up or another thread. Over `tcp` the future
//! may have to wait for a server. It stays where it is until the reply arrives, then moves to the
//! runtime ([`parked`]). Meanwhile the thread takes the kernel's next request. So the number of
//! threads limits only the work that runs at the same time.
//!
//! A signal makes the kernel send INTERRUPT. Programs get signals all the time, and on a local file
//! system only a deadly signal ends an operation. But a process that waits for a dead server must
//! be killable. So after an interrupt the mount checks, every [`INTERRUPT_GRACE`], whether the
//! process is dying. If it is, the kernel gets EINTR, and the operation continues to its end with
//! no process waiting. It is not dropped half done, because then a write could still land on top of
//! later writes. A wait for another program's lock is different: any signal ends the wait with
//! EINTR, and withdraws the lock request. It also ends a wait for changelog records. Over
//! io_uring the kernel sends no INTERRUPT for a signal that comes before it has delivered the
//! request. So the mount also looks for signals itself, every [`SIGNAL_CHECK`].

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use sheen_client::Client;
use sheen_fuse::{
    Filesystem, FlagsWatch, Header, InitConfig, Negotiated, Notifier, Op, Reply, Request, abi::flags::init,
};
use sheen_rt::{
    Rt,
    operation::{self, Operation, SLOW_AFTER},
};
use sheen_wire::{Errno, JobId, Result, control, ldlm::Mode};

use crate::{
    answer::{self, Answer},
    ioctl,
    job_ids::Caller,
    kernel::Kernel,
    ops,
    options::{Locks, Options},
    parked,
    state::{Inner, Signal},
};

/// Interval at which the mount checks whether the process of an interrupted request is dying.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// Interval at which the mount looks for a signal to a process that waits for a lock. A signal that
/// is pending twice in a row counts: another thread of the process may be about to take it.
const SIGNAL_CHECK: Duration = Duration::from_secs(1);

/// The file system that the FUSE session calls.
pub struct Face(Arc<Inner>);

type Work = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

impl Face {
    /// Creates the file system of `client`.
    pub fn new(rt: Rt, client: Arc<Client>, options: Options) -> Face {
        Face(Arc::new(Inner::new(rt, client, options)))
    }

    /// Sets the flags of the mount, which follow a remount. To be called once.
    pub fn mounted(&self, flags: Arc<FlagsWatch>) {
        self.0.set_flags(flags);
    }
}

impl Filesystem for Face {
    /// Configures the session. The kernel drops cached data when the client invalidates it, and not
    /// when an attribute looks new. POSIX_ACL also makes the kernel check permissions. It must do
    /// so, because it resolves cached names without a request. The MDT still checks by itself.
    fn init(&self, config: &mut InitConfig) {
        config.disable(init::AUTO_INVAL_DATA);
        // The target of a symbolic link never changes.
        config.enable(init::EXPLICIT_INVAL_DATA | init::POSIX_ACL | init::CACHE_SYMLINKS);
        if !self.0.options().rdplus {
            config.disable(init::DO_READDIRPLUS | init::READDIRPLUS_AUTO);
        }
        // Also for refused locks: otherwise the kernel would manage them itself.
        if self.0.options().locks != Locks::Local {
            config.enable(init::POSIX_LOCKS | init::FLOCK_LOCKS);
        }
    }

    fn started(&self, _: &Negotiated, notifier: &Notifier) {
        self.0.start(notifier);
    }

    fn request(&self, request: Request, reply: Reply) {
        // `started` sets the kernel before the first request.
        let Some(kernel) = self.0.kernel() else { return reply.error(Errno::EIO) };
        let (header, name) = (request.header, request.op.name());
        let unique = header.unique;
        let waits = match &request.op {
            Op::SetLk { wait, .. } => *wait,
            Op::Ioctl(command) => ioctl::waits(command),
            Op::GetXattr { name, .. } => control::is_wait(name),
            _ => false,
        };
        let signal = waits.then(|| self.0.signal(unique));
        let id = self.0.op_id(unique);
        let caller = Caller { pid: header.pid, uid: header.uid, gid: header.gid };
        let jobs = &self.0.options().jobs;
        let known = match &request.op {
            // Servers count no request of theirs by job: neither a close nor an unlock. And a
            // program that becomes another one waits for the flush: its environment cannot be read
            // meanwhile.
            Op::Flush { .. } | Op::Release { .. } | Op::ReleaseDir { .. } => Some(JobId::NONE),
            _ => jobs.known(&self.0.rt, caller),
        };
        let run = ops::run(self.0.clone(), request, signal.clone());
        let mut work: Work = match known {
            Some(job) => Box::pin(operation::within(Operation { id, job }, run)),
            None => {
                let me = self.0.clone();
                Box::pin(async move {
                    let job = me.options().jobs.find(&me.rt, caller).await;
                    operation::within(Operation { id, job }, run).await
                })
            }
        };
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => {
                if signal.is_some() {
                    self.0.forget_signal(unique);
                }
                answer::send(kernel, outcome, reply);
            }
            Poll::Pending => self.0.go_on(kernel.clone(), &header, name, work, reply, signal),
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.0.interrupt(unique)
    }

    fn destroy(&self) {}
}

impl Inner {
    /// Hands a pending request over to the runtime. Logs it if it is slow, unless it waits for a
    /// program.
    fn go_on(
        self: &Arc<Inner>,
        kernel: Arc<Kernel>,
        header: &Header,
        name: &'static str,
        work: Work,
        reply: Reply,
        signal: Option<Signal>,
    ) {
        let (unique, pid, waits) = (header.unique, header.pid, signal.is_some());
        let signal = signal.unwrap_or_else(|| self.signal(unique));
        let (me, began) = (self.clone(), self.rt.now());
        let rest = async move {
            let mut work = work;
            let outcome = tokio::select! {
                biased;
                outcome = me.until_done_or_killed(&mut work, pid, signal) => outcome,
                never = me.look_for_signals(unique, pid), if waits => match never {},
            };
            me.forget_signal(unique);
            let took = me.rt.now().since(began);
            if took >= SLOW_AFTER && !waits {
                let seconds = took.as_secs();
                tracing::warn!(operation = name, seconds, "slow operation: its program waited");
            }
            match outcome {
                Some(outcome) => answer::send(&kernel, outcome, reply),
                None => {
                    answer::send(&kernel, Err(Errno::EINTR), reply);
                    me.take_back(work.await).await;
                }
            }
        };
        parked::go_on(
            &self.rt,
            "fuse request",
            Box::pin(operation::within(Operation::without_job(self.op_id(unique)), rest)),
        );
    }

    /// Reports signals to a request that waits for a program, although the kernel did not.
    async fn look_for_signals(&self, unique: u64, pid: u32) -> Infallible {
        let mut pending = false;
        loop {
            self.rt.sleep(SIGNAL_CHECK).await;
            let was_pending = mem::replace(&mut pending, sheen_rt::proc::has_signal(pid));
            if was_pending && pending {
                self.interrupt(unique);
            }
        }
    }

    /// Returns the result of the operation; `None` if its process is dying before it is done.
    async fn until_done_or_killed(&self, work: &mut Work, pid: u32, signal: Signal) -> Option<Result<Answer>> {
        tokio::select! {
            biased;
            outcome = &mut *work => return Some(outcome),
            () = signal.came() => {}
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

    /// Closes a file that was opened for a killed process, or releases its lock, because the kernel
    /// does not know of them.
    async fn take_back(&self, outcome: Result<Answer>) {
        let closed = match outcome {
            Ok(Answer::Open { fh, .. } | Answer::Create { fh, .. }) => match self.files.remove(fh) {
                Some(file) => self.client.release(file.open()).await,
                None => Ok(()),
            },
            Ok(Answer::OpenDir { fh }) => match self.dirs.remove(fh) {
                Some(dir) => self.client.releasedir(dir).await,
                None => Ok(()),
            },
            Ok(Answer::Locked { fid, flock }) => {
                self.client.lock(fid, flock, Mode::Nl, false, std::future::pending()).await
            }
            _ => Ok(()),
        };
        if let Err(e) = closed {
            tracing::debug!("cleanup after a killed process failed: {e}");
        }
    }
}
