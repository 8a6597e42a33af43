//! Request handling: which thread runs a request, and what an interrupt does.
//!
//! The thread that read the request polls its future once. Over `lo` the request is done then, and
//! the same thread replies, without a wake-up or another thread. Over `tcp` the future may have to
//! wait for a server. It stays where it is until the reply arrives, then moves to the runtime
//! ([`parked`]). Meanwhile the thread takes the kernel's next request. So the number of threads
//! limits only the work that runs at the same time.
//!
//! A signal makes the kernel send INTERRUPT. Programs get signals all the time, and on a local file
//! system only a deadly signal ends an operation. But a process that waits for a dead server must
//! be killable. So after an interrupt the mount checks, every [`INTERRUPT_GRACE`], whether the
//! process is dying. If it is, the kernel gets EINTR, and the operation continues to its end with
//! no process waiting. It is not dropped half done, because then a write could still land on top of
//! later writes. A wait for another program's lock is different: any signal ends the wait with
//! EINTR, and withdraws the lock request.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_client::{Client, Invalidate, OpenDir};
use sheen_fuse::{
    Filesystem, FlagsWatch, Forget, InitConfig, MountFlags, Negotiated, Notifier, Op, Reply, Request, abi::flags::init,
};
use sheen_rt::Rt;
use sheen_wire::{Errno, Fid, Result, ldlm::Mode};
use tokio::sync::watch;

use crate::{
    answer::{self, Answer},
    file::File,
    handles::Handles,
    ioctl,
    kernel::{Kernel, Moment},
    made::Made,
    node::Inos,
    ops, parked,
};

/// Interval at which the mount checks whether the process of an interrupted request is dying.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// Handling of flock(2) and fcntl(2) locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// Valid on all mounts.
    Shared,
    /// Valid among the programs of this mount. The kernel manages them, and the close of a file
    /// takes one request less.
    Local,
    /// Refused (ENOSYS).
    Refused,
}

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that take requests from the kernel.
    pub threads: u32,
    /// Largest read or write of one request, in bytes; the kernel may allow less.
    pub max_write_bytes: u32,
    /// The servers are in this process: data is sent to the kernel directly from the servers'
    /// files, if a pipe can hold it.
    pub local: bool,
    /// Whether users other than the one who mounts may use the mount.
    pub allow_other: bool,
    /// The kernel's flags of the mount; a remount may change them.
    pub flags: MountFlags,
    /// File locks of programs.
    pub locks: Locks,
    /// Whether extended attributes `user.*` are supported.
    pub user_xattrs: bool,
    /// Inode numbers have 32 bits, for programs that know no others; two files may have the same.
    pub short_inos: bool,
    /// Whether the kernel may request entries with attributes (READDIRPLUS), which makes the client
    /// fetch the attributes ahead.
    pub rdplus: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 4,
            max_write_bytes: 1 << 20,
            local: false,
            allow_other: false,
            flags: MountFlags::default(),
            locks: Locks::Shared,
            user_xattrs: true,
            short_inos: false,
            rdplus: true,
        }
    }
}

/// The file system that the FUSE session calls.
pub struct Face(Arc<Inner>);

/// State that all operations use.
pub struct Inner {
    pub rt: Rt,
    pub client: Arc<Client>,
    pub files: Handles<File>,
    pub dirs: Handles<OpenDir>,
    pub made: Made,
    /// Set at the start of the session.
    kernel: OnceLock<Arc<Kernel>>,
    /// Set when the file system is mounted.
    flags: OnceLock<Arc<FlagsWatch>>,
    options: Options,
    /// Senders of signals to waiting requests, by request number. Bounded by the kernel's limit of
    /// requests in flight.
    waiting: Mutex<FxHashMap<u64, watch::Sender<bool>>>,
}

/// Reports a signal of the process to its request.
#[derive(Clone)]
pub struct Signal(watch::Receiver<bool>);

impl Signal {
    /// Resolves when a signal has come; never, if the request ends without one.
    pub async fn came(mut self) {
        if self.0.wait_for(|came| *came).await.is_err() {
            std::future::pending().await
        }
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

impl Face {
    /// Creates the file system of `client`.
    pub fn new(rt: Rt, client: Arc<Client>, options: Options) -> Face {
        Face(Arc::new(Inner {
            rt,
            client,
            files: Handles::new(),
            dirs: Handles::new(),
            made: Made::default(),
            kernel: OnceLock::new(),
            flags: OnceLock::new(),
            options,
            waiting: Mutex::new(FxHashMap::default()),
        }))
    }

    /// Sets the flags of the mount, which follow a remount. To be called once.
    pub fn mounted(&self, flags: Arc<FlagsWatch>) {
        // A second call would be a bug of this crate; the first value stays.
        let _ = self.0.flags.set(flags);
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
        if !self.0.options.rdplus {
            config.disable(init::DO_READDIRPLUS | init::READDIRPLUS_AUTO);
        }
        // Also for refused locks: otherwise the kernel would manage them itself.
        if self.0.options.locks != Locks::Local {
            config.enable(init::POSIX_LOCKS | init::FLOCK_LOCKS);
        }
    }

    fn started(&self, _: &Negotiated, notifier: &Notifier) {
        let kernel = self.0.kernel.get_or_init(|| Arc::new(Kernel::new(notifier.clone(), self.0.inos())));
        self.0.client.set_kernel(kernel.clone());
    }

    fn request(&self, request: Request, reply: Reply) {
        // `started` sets the kernel before the first request.
        let Some(kernel) = self.0.kernel.get() else { return reply.error(Errno::EIO) };
        let (unique, pid) = (request.header.unique, request.header.pid);
        let waits = match &request.op {
            Op::SetLk { wait, .. } => *wait,
            Op::Ioctl(command) => ioctl::waits(command),
            _ => false,
        };
        let signal = waits.then(|| self.0.signal(unique));
        let mut work: Work = Box::pin(ops::run(self.0.clone(), request, signal.clone()));
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => {
                if signal.is_some() {
                    self.0.waiting.lock().remove(&unique);
                }
                answer::send(kernel, outcome, reply);
            }
            Poll::Pending => self.0.go_on(kernel.clone(), unique, pid, work, reply, signal),
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.0.waiting.lock().get(&unique).map(|sender| sender.send_replace(true)).is_some()
    }

    fn destroy(&self) {}
}

impl Inner {
    /// Invalidates attributes of a file that this mount has changed in a way that the kernel does
    /// not expect. The kernel drops attributes that its own requests change. But no callback
    /// reports a change by this client to this client.
    pub fn changed_unseen(&self, fid: Fid) {
        if let Some(kernel) = self.kernel.get() {
            // The kernel knows the file, because the request is about it.
            kernel.attr(fid);
        }
    }

    /// Returns the present moment, to be taken before the lookup for a reply that brings a file.
    pub fn moment(&self) -> Moment {
        self.kernel.get().map(|kernel| kernel.moment()).unwrap_or_default()
    }

    /// Removes files that the kernel has forgotten (FORGET).
    pub fn forgotten(&self, files: &[Forget]) {
        if let Some(kernel) = self.kernel.get() {
            kernel.forgets(files);
        }
    }

    /// Returns whether the kernel sends lock requests to this file system. Then it has to report
    /// closes as well.
    pub fn tells_locks(&self) -> bool {
        self.options.locks == Locks::Shared
    }

    /// Returns ENOSYS if this mount refuses file locks.
    pub fn check_locks(&self) -> Result<()> {
        if self.options.locks == Locks::Refused { Err(Errno::ENOSYS) } else { Ok(()) }
    }

    /// Returns EOPNOTSUPP for an extended attribute that this mount does not support.
    pub fn check_xattr(&self, name: &[u8]) -> Result<()> {
        let is_refused = !self.options.user_xattrs && name.starts_with(b"user.");
        if is_refused { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// Returns the kind of inode numbers that programs see.
    pub fn inos(&self) -> Inos {
        if self.options.short_inos { Inos::Short } else { Inos::Full }
    }

    /// Returns the present flags of the mount.
    fn mount_flags(&self) -> MountFlags {
        self.flags.get().map_or(self.options.flags, |flags| flags.now())
    }

    /// Returns whether changes are refused. The kernel refuses them itself, except ioctl(2)s: it
    /// does not know which of these are changes.
    pub fn is_read_only(&self) -> bool {
        self.mount_flags().read_only
    }

    /// Returns whether reads update access times.
    pub fn moves_atime(&self) -> bool {
        let flags = self.mount_flags();
        !flags.noatime && !flags.read_only
    }

    /// Registers the request `unique` for a signal.
    fn signal(&self, unique: u64) -> Signal {
        let (sender, receiver) = watch::channel(false);
        self.waiting.lock().insert(unique, sender);
        Signal(receiver)
    }

    /// Hands a pending request over to the runtime.
    fn go_on(
        self: &Arc<Inner>,
        kernel: Arc<Kernel>,
        unique: u64,
        pid: u32,
        work: Work,
        reply: Reply,
        signal: Option<Signal>,
    ) {
        let signal = signal.unwrap_or_else(|| self.signal(unique));
        let me = self.clone();
        let rest = async move {
            let mut work = work;
            let outcome = me.until_done_or_killed(&mut work, pid, signal).await;
            me.waiting.lock().remove(&unique);
            match outcome {
                Some(outcome) => answer::send(&kernel, outcome, reply),
                None => {
                    answer::send(&kernel, Err(Errno::EINTR), reply);
                    me.take_back(work.await).await;
                }
            }
        };
        parked::go_on(&self.rt, "fuse request", Box::pin(rest));
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
