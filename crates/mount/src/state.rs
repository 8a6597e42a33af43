//! The state of a mount that all operations use.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_client::{Client, Invalidate, OpenDir};
use sheen_fuse::{FlagsWatch, Forget, MountFlags, Notifier};
use sheen_rt::Rt;
use sheen_wire::{Errno, Fid, OpId, Result};
use tokio::sync::watch;

use crate::{
    create_getattr::CreateReplies,
    file::File,
    handles::Handles,
    kernel::{Kernel, Moment},
    locks::Owners,
    node::Inos,
    options::{Locks, Options},
};

/// State that all operations use.
pub struct Inner {
    pub rt: Rt,
    pub client: Arc<Client>,
    pub files: Handles<File>,
    pub dirs: Handles<OpenDir>,
    pub create_replies: CreateReplies,
    pub owners: Owners,
    /// Set at the start of the session.
    kernel: OnceLock<Arc<Kernel>>,
    /// Set when the file system is mounted.
    flags: OnceLock<Arc<FlagsWatch>>,
    options: Options,
    /// The mount's instance number, as in names of parameters.
    instance: u64,
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

/// Resolves when a signal has come to the process of a request. Never resolves without `signal`.
pub async fn interrupted(signal: Option<Signal>) {
    match signal {
        Some(signal) => signal.came().await,
        None => std::future::pending().await,
    }
}

impl Inner {
    /// Creates the state of a mount of `client`.
    pub fn new(rt: Rt, client: Arc<Client>, options: Options) -> Inner {
        let instance = u64::from_str_radix(client.instance(), 16).unwrap_or_default();
        Inner {
            rt,
            client,
            files: Handles::new(),
            dirs: Handles::new(),
            create_replies: CreateReplies::default(),
            owners: Owners::default(),
            kernel: OnceLock::new(),
            flags: OnceLock::new(),
            options,
            instance,
            waiting: Mutex::new(FxHashMap::default()),
        }
    }

    /// Sets the flags of the mount, which follow a remount. To be called once.
    pub fn set_flags(&self, flags: Arc<FlagsWatch>) {
        // A second call would be a bug of this crate; the first value stays.
        let _ = self.flags.set(flags);
    }

    /// Creates the kernel's side of the session, at the session's start.
    pub fn start(&self, notifier: &Notifier) {
        let kernel =
            self.kernel.get_or_init(|| Arc::new(Kernel::new(notifier.clone(), self.inos(), self.client.root())));
        self.client.set_kernel(kernel.clone());
    }

    /// Returns the kernel's side of the session; `None` before its start.
    pub fn kernel(&self) -> Option<&Arc<Kernel>> {
        self.kernel.get()
    }

    /// Returns the id of the operation that the kernel's request `unique` is.
    pub fn op_id(&self, unique: u64) -> OpId {
        OpId::new(self.instance, unique)
    }

    /// Returns the options of the mount.
    pub fn options(&self) -> &Options {
        &self.options
    }

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
    pub fn signal(&self, unique: u64) -> Signal {
        let (sender, receiver) = watch::channel(false);
        self.waiting.lock().insert(unique, sender);
        Signal(receiver)
    }

    /// Reports a signal to the request `unique`. Returns whether the request waits for one.
    pub fn interrupt(&self, unique: u64) -> bool {
        self.waiting.lock().get(&unique).map(|sender| sender.send_replace(true)).is_some()
    }

    /// Removes the registration of a request.
    pub fn forget_signal(&self, unique: u64) {
        self.waiting.lock().remove(&unique);
    }
}
