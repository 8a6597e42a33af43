//! A mounted file system: translates FUSE requests into calls of the client. File-system behaviour
//! lives in the client; what is decided here is only what concerns the kernel: node ids, handles,
//! flags of an open, sizes of buffers.
//!
//! * [`serve`]: which thread does the work of a request, and what an interrupt does;
//! * [`parked`]: a request that waits for a server;
//! * [`ops`]: one function an operation, from the kernel's words to the client's;
//! * [`answer`]: what an operation comes to, before it is written to the kernel;
//! * [`kernel`], [`known`]: what the kernel keeps, and how it is made to forget;
//! * [`file`], [`locks`], [`ioctl`]: open files, locks of programs, and what else they ask of open
//!   files.
//!
//! Node ids are inode numbers ([`sheen_wire::Fid::ino`]), which name a FID one to one: there is no
//! table of nodes, only a count of what the kernel was told of ([`known`]). The root is 1 to the
//! kernel.
//!
//! The kernel keeps names, attributes and pages for as long as the client holds the locks that
//! guard them; the client has it forget them first when a lock is called back. Names that are not
//! there it does not keep.

mod answer;
mod file;
mod handles;
mod ioctl;
mod kernel;
mod known;
mod locks;
mod made;
mod node;
mod ops;
mod parked;
mod serve;

use std::{io, path::Path, sync::Arc};

use sheen_client::{Client, GroupSource};
use sheen_fuse::Session;
pub use sheen_fuse::{MountError, MountFlags, remount};
use sheen_rt::Rt;

pub use serve::{Locks, Options};

/// How far the kernel reads ahead of a sequential reader: four requests of the largest size, so
/// that a server is asked while the answers of others arrive.
const READAHEAD_BYTES: u32 = 4 << 20;

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
        // Names that the kernel keeps are passed without asking, so it has to look at permissions
        // itself.
        mount.default_permissions = true;
        mount.flags = options.flags;
        if options.local {
            let most = sheen_fuse::files_bytes_max();
            mount.max_read = (most > 0).then(|| options.max_write_bytes.min(u32::try_from(most).unwrap_or(u32::MAX)));
        }
        let session = sheen_fuse::SessionOptions {
            threads: options.threads as usize,
            max_write: options.max_write_bytes,
            readahead_bytes: READAHEAD_BYTES,
            ..Default::default()
        };
        let session = Arc::new(Session::mount(mount, session, face.clone())?);
        face.mounted(session.flags());
        Ok(Mount { rt, session, client })
    }

    /// Waits until the kernel has unmounted it, then takes leave of the servers.
    pub async fn ended(&self) {
        let session = self.session.clone();
        self.rt.run_blocking(move || session.join()).await;
        self.client.umount().await;
    }

    /// Unmounts. EBUSY while programs use it, unless `force` detaches it under them.
    pub fn unmount(&self, force: bool) -> io::Result<()> {
        if force { self.session.unmount() } else { self.session.try_unmount() }
    }
}

/// Checks what can be checked of a mount without making it, and without asking a server.
///
/// # Errors
/// As [`Mount::start`]. A mount point that is missing is none: it can be made.
pub fn check(mountpoint: &Path, source: &str) -> Result<(), MountError> {
    sheen_fuse::check_mount(&sheen_fuse::MountOptions::new(mountpoint, source))
}

/// Unmounts whatever lies at a path; see [`Mount::unmount`].
pub fn unmount(mountpoint: &Path, force: bool) -> io::Result<()> {
    sheen_fuse::unmount(mountpoint, force)
}

/// Finds the supplementary groups of a process in /proc.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcGroups;

impl GroupSource for ProcGroups {
    fn groups(&self, pid: u32) -> Option<Vec<u32>> {
        sheen_rt::proc::groups_of(pid).ok()
    }
}
