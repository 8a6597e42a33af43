//! Which thread does the work of a request.
//!
//! The thread that read the request polls its future once. Over `lo` it is done then, and the same
//! thread answers: no wake-up, no other thread. Where it pends, waiting for a server over `tcp`, it
//! stays where it is until the answer comes, then moves to the runtime ([`parked`]), and the thread
//! takes the kernel's next request; so the number of threads bounds nothing but the work that is
//! really done at once.
//!
//! A signal makes the kernel send INTERRUPT. Programs get signals all the time, and on a local file
//! system none but a deadly one ends an operation; but a process that waits for a dead server must
//! be killable. So an interrupt is taken as a reason to look, each [`INTERRUPT_GRACE`], whether the
//! process is dying. If it is, the kernel is answered EINTR and the work goes on to its end without
//! anybody waiting: dropped half way, a write could still land on what is written after it. A wait
//! for somebody else's lock is another matter: any signal ends it, with EINTR, and the request for
//! the lock is withdrawn.

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

/// How often it is looked whether whoever waits for an interrupted request is dying.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// What becomes of flock(2) and fcntl(2) locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// They hold on all mounts.
    Shared,
    /// They hold among the programs of this mount; the kernel keeps them, and closing a file costs
    /// one request less.
    Local,
    /// They are refused (ENOSYS).
    Refused,
}

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that take requests from the kernel.
    pub threads: u32,
    /// Largest read or write of one request, in bytes; the kernel may allow less.
    pub max_write_bytes: u32,
    /// The servers are in this process: what is read goes to the kernel from where it lies, if
    /// pipes hold it.
    pub local: bool,
    /// Whether other users than the one who mounts may use the mount.
    pub allow_other: bool,
    /// What the kernel is to permit; a remount may change it.
    pub flags: MountFlags,
    /// Locks of programs.
    pub locks: Locks,
    /// There are extended attributes `user.*`.
    pub user_xattrs: bool,
    /// Inode numbers have 32 bits, for programs that know no others; two files may have the same.
    pub short_inos: bool,
    /// The kernel may ask for entries with attributes (READDIRPLUS), which has the client fetch
    /// them ahead.
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

/// What the kernel talks to.
pub struct Face(Arc<Inner>);

/// What the operations use.
pub struct Inner {
    pub rt: Rt,
    pub client: Arc<Client>,
    pub files: Handles<File>,
    pub dirs: Handles<OpenDir>,
    pub made: Made,
    /// From the start of the session.
    kernel: OnceLock<Arc<Kernel>>,
    /// From when it is mounted.
    flags: OnceLock<Arc<FlagsWatch>>,
    options: Options,
    /// Requests that wait, by their number, and how to tell them of a signal. Bounded by the
    /// kernel's own limit of requests under way.
    waiting: Mutex<FxHashMap<u64, watch::Sender<bool>>>,
}

/// Tells a request of a signal to its process.
#[derive(Clone)]
pub struct Signal(watch::Receiver<bool>);

impl Signal {
    /// Ready when a signal has come; never, if the request is done without one.
    pub async fn came(mut self) {
        if self.0.wait_for(|came| *came).await.is_err() {
            std::future::pending().await
        }
    }
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
            made: Made::default(),
            kernel: OnceLock::new(),
            flags: OnceLock::new(),
            options,
            waiting: Mutex::new(FxHashMap::default()),
        }))
    }

    /// It is mounted: `flags` tells what a remount makes of it. Once.
    pub fn mounted(&self, flags: Arc<FlagsWatch>) {
        // A second one would be a mistake of this crate; the first stays.
        let _ = self.0.flags.set(flags);
    }
}

impl Filesystem for Face {
    /// What the kernel keeps is dropped when the client says so, and not when some attribute looks
    /// new. POSIX_ACL also makes the kernel check permissions, as it must where it uses names
    /// without asking; the MDT goes on checking by itself.
    fn init(&self, config: &mut InitConfig) {
        config.disable(init::AUTO_INVAL_DATA);
        // The target of a symbolic link never changes.
        config.enable(init::EXPLICIT_INVAL_DATA | init::POSIX_ACL | init::CACHE_SYMLINKS);
        if !self.0.options.rdplus {
            config.disable(init::DO_READDIRPLUS | init::READDIRPLUS_AUTO);
        }
        // Those that are refused are as well: the kernel would else keep them by itself.
        if self.0.options.locks != Locks::Local {
            config.enable(init::POSIX_LOCKS | init::FLOCK_LOCKS);
        }
    }

    fn started(&self, _: &Negotiated, notifier: &Notifier) {
        let kernel = self.0.kernel.get_or_init(|| Arc::new(Kernel::new(notifier.clone(), self.0.inos())));
        self.0.client.set_kernel(kernel.clone());
    }

    fn request(&self, request: Request, reply: Reply) {
        // There is one before the first request.
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
    /// This mount changed attributes of a file in a way that the kernel does not expect. It knows
    /// of its own changes, and drops what they make old; what this client changes calls nobody's
    /// locks back here.
    pub fn changed_unseen(&self, fid: Fid) {
        if let Some(kernel) = self.kernel.get() {
            // The kernel knows the file: it is what the request is about.
            kernel.attr(fid);
        }
    }

    /// To be taken before an answer that brings the kernel a file is looked up.
    pub fn moment(&self) -> Moment {
        self.kernel.get().map(|kernel| kernel.moment()).unwrap_or_default()
    }

    /// The kernel forgets files.
    pub fn forgotten(&self, files: &[Forget]) {
        if let Some(kernel) = self.kernel.get() {
            kernel.forgets(files);
        }
    }

    /// Whether the kernel asks this file system about locks, and has to tell it of closes for their
    /// sake.
    pub fn tells_locks(&self) -> bool {
        self.options.locks == Locks::Shared
    }

    /// ENOSYS where locks of programs are refused.
    pub fn check_locks(&self) -> Result<()> {
        if self.options.locks == Locks::Refused { Err(Errno::ENOSYS) } else { Ok(()) }
    }

    /// EOPNOTSUPP for an extended attribute that this mount does without.
    pub fn check_xattr(&self, name: &[u8]) -> Result<()> {
        let is_refused = !self.options.user_xattrs && name.starts_with(b"user.");
        if is_refused { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// The inode numbers that programs see.
    pub fn inos(&self) -> Inos {
        if self.options.short_inos { Inos::Short } else { Inos::Full }
    }

    /// What the kernel permits at the moment.
    fn mount_flags(&self) -> MountFlags {
        self.flags.get().map_or(self.options.flags, |flags| flags.now())
    }

    /// Whether changes are refused. The kernel does that; it does not know which ioctl(2)s are
    /// changes.
    pub fn is_read_only(&self) -> bool {
        self.mount_flags().read_only
    }

    /// Whether reading moves access times.
    pub fn moves_atime(&self) -> bool {
        let flags = self.mount_flags();
        !flags.noatime && !flags.read_only
    }

    /// What will tell the request `unique` of a signal.
    fn signal(&self, unique: u64) -> Signal {
        let (sender, receiver) = watch::channel(false);
        self.waiting.lock().insert(unique, sender);
        Signal(receiver)
    }

    /// Lets the runtime finish what the thread began.
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

    /// What the work comes to; `None` if its process is dying and cannot wait for it any longer.
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

    /// Closes what was opened for a process that is no more, and gives its lock back: the kernel
    /// does not know of them and will not.
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
            tracing::debug!("closing what a killed process had opened: {e}");
        }
    }
}
