//! The directory of an OST and what is done to the objects in it: one operation a module.
//!
//! * [`format`]: who the directory belongs to, and the lock on it;
//! * [`files`]: open files of objects, and which names are durable;
//! * `close`: objects that files have left, which nobody may use any more;
//! * `read`, `write`, `list`, `link`, `attrs`, `seek`, `truncate`, `allocate`, `sync`, `destroy`,
//!   `statfs`: the requests of [`sheen_wire::ost::Request`], as methods of [`Store`].
//!
//! Methods expect requests that [`sheen_objects::check::request`] let pass. They run on the calling
//! thread, also where they wait for the disk; only syncs of directories and whole file systems are
//! awaited.

use std::path::Path;

use sheen_objects::{Identity, Sharing, sharing::Share};
use sheen_rt::Rt;

use crate::OssError;

mod allocate;
mod attrs;
mod close;
mod destroy;
pub mod files;
pub mod format;
mod gather;
mod link;
mod list;
mod read;
mod seek;
mod statfs;
mod sync;
mod truncate;
mod write;

use files::Files;
use format::Home;

/// An OST's directory, locked and ready for requests.
pub struct Store {
    rt: Rt,
    home: Home,
    files: Files,
    share: Share,
    buffers: gather::Pools,
    closed: close::Closed,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.home.dir().display())
    }
}

impl Store {
    /// Opens the directory `dir` of file system `fsname`, formatting it if it is missing or empty,
    /// and takes its lock.
    ///
    /// # Errors
    /// Another process has it, it belongs to someone else, or the disk fails.
    pub async fn open(
        rt: &Rt,
        dir: &Path,
        fsname: &str,
        index: Option<u32>,
        open_files_max: usize,
        sharing: &Sharing,
    ) -> Result<Store, OssError> {
        let home = Home::open(rt, dir, fsname, index).await?;
        Store::joined(rt, home, open_files_max, |device| sharing.join(device))
    }

    /// As [`Store::open`], but the others on the device need not leave it a part of the space
    /// ([`Sharing::join_uncounted`]).
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_uncounted(
        rt: &Rt,
        dir: &Path,
        fsname: &str,
        index: Option<u32>,
        open_files_max: usize,
        sharing: &Sharing,
    ) -> Result<Store, OssError> {
        let home = Home::open(rt, dir, fsname, index).await?;
        Store::joined(rt, home, open_files_max, |device| sharing.join_uncounted(device))
    }

    fn joined(rt: &Rt, home: Home, open_files_max: usize, join: impl FnOnce(u64) -> Share) -> Result<Store, OssError> {
        let dir = home.dir();
        let device =
            rt.disk().device(dir).map_err(|source| OssError::Io { what: "look at", path: dir.into(), source })?;
        let closed = close::Closed::open(rt, dir).map_err(|source| OssError::Io {
            what: "read the closed objects of",
            path: dir.into(),
            source,
        })?;
        Ok(Store {
            closed,
            files: Files::new(rt, dir, open_files_max),
            share: join(device),
            buffers: gather::Pools::new(),
            rt: rt.clone(),
            home,
        })
    }

    /// Who the directory belongs to.
    pub fn identity(&self) -> &Identity {
        self.home.identity()
    }

    /// Notes the index that the MGS gave to a new OST.
    pub fn set_index(&mut self, index: u32) -> Result<(), OssError> {
        self.home.set_index(index)
    }

    /// Makes everything durable and gives the directory back. Nothing may be asked of the store
    /// after it.
    ///
    /// # Errors
    /// What the local file system says; the directory is given back all the same.
    pub async fn close(&self) -> sheen_wire::Result<()> {
        let synced = self.sync(&[]).await;
        self.home.release();
        synced
    }

    /// Files held open at the moment.
    pub fn open_files(&self) -> usize {
        self.files.open_count()
    }
}
