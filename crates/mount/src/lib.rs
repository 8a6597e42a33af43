//! A mounted file system: translates FUSE requests into calls of the client.
//!
//! The client implements the file system. This crate decides only what concerns the kernel: node
//! ids, handles, flags of an open, buffer sizes.
//!
//! * [`serve`]: which thread runs a request, and what an interrupt does;
//! * [`state`]: what all operations use;
//! * [`parked`]: a request that waits for a server;
//! * [`ops`]: one function per operation, from the kernel's terms to the client's;
//! * [`answer`]: the result of an operation, before it is written to the kernel;
//! * [`kernel`], [`lookup_counts`]: the kernel's caches, and their invalidation;
//! * [`file`], [`locks`]: open files, and file locks of programs;
//! * [`ioctl`], [`queries`], [`project`]: ioctls;
//! * [`job_ids`]: the jobs for which programs work.
//!
//! Node ids are inode numbers ([`sheen_wire::Fid::ino`]), one for each FID. So there is no table of
//! nodes, only a count of the files that the kernel knows ([`lookup_counts`]). The kernel's node id
//! of the root is 1.
//!
//! The kernel caches names, attributes and pages as long as the client holds the locks that guard
//! them. At a blocking callback the client invalidates them before it cancels the lock. The kernel
//! does not cache that a name is missing.

mod answer;
mod create_getattr;
mod file;
mod handles;
mod ioctl;
mod job_ids;
mod kernel;
mod locks;
mod lookup_counts;
mod node;
mod ops;
mod options;
mod parked;
mod project;
mod queries;
mod serve;
mod state;

use std::{io, path::Path, sync::Arc};

use sheen_client::{Client, GroupSource, ReadAheadWindow};
pub use sheen_fuse::{IoUring, IoUringSwitch, MountError, MountFlags, remount};
use sheen_fuse::{Session, SessionStats};
use sheen_rt::Rt;
use sheen_wire::Errno;

pub use job_ids::JobIds;
pub use options::{Locks, Options};

/// Default of `max_read_ahead_per_file_mb`: readahead window of the kernel for a sequential reader,
/// in MiB. Four requests of the largest size: a server works on one while the replies of others
/// arrive.
const READAHEAD_MB: u64 = 4;

/// A running mount.
pub struct Mount {
    rt: Rt,
    session: Arc<Session>,
    client: Arc<Client>,
}

impl Mount {
    /// Mounts `client` at a directory and starts serving it.
    pub fn start(
        rt: Rt,
        client: Arc<Client>,
        mountpoint: &Path,
        source: &str,
        options: Options,
    ) -> Result<Mount, MountError> {
        let face = Arc::new(serve::Face::new(rt.clone(), client.clone(), options.clone()));
        let mut mount = sheen_fuse::MountOptions::new(mountpoint, source);
        mount.allow_other = options.allow_other;
        // The kernel resolves cached names without a request, so it has to check permissions
        // itself.
        mount.default_permissions = true;
        mount.flags = options.flags;
        if options.local {
            let most = sheen_fuse::files_bytes_max();
            mount.max_read = (most > 0).then(|| options.max_write_bytes.min(u32::try_from(most).unwrap_or(u32::MAX)));
        }
        let session = sheen_fuse::SessionOptions {
            threads: options.threads as usize,
            io_uring: options.io_uring,
            max_write: options.max_write_bytes,
            ..Default::default()
        };
        let session = Arc::new(Session::mount(mount, session, face.clone())?);
        face.mounted(session.flags());
        tune_read_ahead(&client, &session);
        Ok(Mount { rt, session, client })
    }

    /// Waits until the kernel has unmounted the file system, then disconnects from the servers.
    pub async fn ended(&self) {
        let session = self.session.clone();
        self.rt.run_blocking(move || session.join()).await;
        self.client.umount().await;
    }

    /// Returns a source of the counters of the kernel's requests, as text: `llite.*.fuse_stats`.
    pub fn fuse_stats(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let session = Arc::downgrade(&self.session);
        move || session.upgrade().map_or_else(String::new, |session| fuse_stats(&session))
    }

    /// Unmounts the file system. EBUSY while programs use it, unless `force` detaches it under
    /// them.
    pub fn unmount(&self, force: bool) -> io::Result<()> {
        if force { self.session.unmount() } else { self.session.try_unmount() }
    }
}

/// Sets the kernel's readahead, and lets parameters of the client change it. Mounts of ordinary
/// users retain the kernel's default of 128 KiB and have no such parameters, because only root may
/// set it.
fn tune_read_ahead(client: &Client, session: &Arc<Session>) {
    let session = Arc::downgrade(session);
    let set = move |bytes: u64| -> Result<(), Errno> {
        let session = session.upgrade().ok_or(Errno::ENODEV)?;
        session.set_readahead(bytes).map_err(Errno::from)
    };
    match ReadAheadWindow::set(READAHEAD_MB, set) {
        Ok(window) => client.tune_read_ahead(window),
        Err(e) => tracing::debug!("cannot set the readahead of the mount: {e}; the kernel's default applies"),
    }
}

fn fuse_stats(session: &Session) -> String {
    let (stats, ring) = (session.stats(), session.negotiated().is_over_io_uring());
    let transport = if ring { "io_uring" } else { "/dev/fuse" };
    let SessionStats { requests, replies, lost_replies, ring_entries_in_use, .. } = stats;
    let mut text =
        format!("transport: {transport}\nrequests: {requests}\nreplies: {replies}\nlost_replies: {lost_replies}");
    if ring {
        text.push_str(&format!("\nring_entries_in_use: {ring_entries_in_use}"));
    }
    text
}

/// Checks the parameters of a mount without mounting, and without a request to a server.
///
/// # Errors
/// As [`Mount::start`]. A missing mount point is no error, because it can be created.
pub fn check(mountpoint: &Path, source: &str) -> Result<(), MountError> {
    sheen_fuse::check_mount(&sheen_fuse::MountOptions::new(mountpoint, source))
}

/// Unmounts the file system at a path; see [`Mount::unmount`].
pub fn unmount(mountpoint: &Path, force: bool) -> io::Result<()> {
    sheen_fuse::unmount(mountpoint, force)
}

/// Source of the supplementary groups of a process: /proc.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcGroups;

impl GroupSource for ProcGroups {
    fn groups(&self, pid: u32) -> Option<Vec<u32>> {
        sheen_rt::proc::groups_of(pid).ok()
    }
}
