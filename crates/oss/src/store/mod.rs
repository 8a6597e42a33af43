//! The directory of an OST, and one module for each operation on the objects in it:
//!
//! * [`format`]: identity of the directory, and the lock on it;
//! * `names`: the names of objects in the directory;
//! * [`files`]: open files of objects, and which names are durable;
//! * `seal`: sealed objects, which a layout change takes out of use: no client may use them;
//! * `markers`: the files that record which objects are sealed;
//! * [`clients`]: the durable list of clients;
//! * `at_rest`: checksums that are stored with objects, and `scrub`: the walk that stores and
//!   compares them;
//! * `damage`: the list of damage, `damage_report`: what others learn of it, and `repair`;
//! * `recreate`: lost objects that are made again, and `staging`: the copy in progress;
//! * `durable`: which objects were durable once, so that a lost one is noticed;
//! * `epoch`: whether data that was not synced may be lost;
//! * `versions`: data versions, and their records;
//! * `owner_index`: files and owners of objects; `accounting`: the sums by owner, `charges`: their
//!   operations;
//! * `replay`: changes made once more that a power failure may have undone;
//! * `read`, `write`, `list`, `link`, `attrs`, `seek`, `truncate`, `allocate`, `sync`, `destroy`,
//!   `statfs`: the requests of [`sheen_wire::ost::Request`], as methods of [`Store`].
//!
//! Methods expect requests that passed [`sheen_objects::check::request`]. They run on the calling
//! thread, also where they wait for the disk. Only syncs of directories and of whole file systems
//! are awaited.

use std::{path::Path, sync::Arc};

use sheen_objects::{Identity, sharing::Share};
use sheen_rt::Rt;
use sheen_wire::{Errno, Fid};

use crate::OssError;

mod accounting;
mod allocate;
mod at_rest;
mod attrs;
mod charges;
pub mod clients;
mod compare;
mod damage;
mod damage_report;
mod destroy;
mod drop_cached;
mod durable;
mod epoch;
pub mod files;
pub mod format;
mod gather;
mod link;
mod list;
mod markers;
pub(crate) mod names;
pub(crate) mod owner_index;
mod read;
mod recreate;
mod repair;
mod replay;
pub mod scrub;
mod seal;
mod seek;
mod staging;
mod statfs;
mod sync;
mod truncate;
mod versions;
mod write;

pub use accounting::{Accounting, Answer, Reserved, Waiting};
use clients::ClientList;
use damage::DamageList;
pub use damage_report::DamageReport;
use durable::DurableObjects;
use epoch::{EPOCH, Epoch};
use files::Files;
use format::Home;
pub use markers::Order;
use markers::SealedObjects;
use staging::Staging;
use versions::Versions;

/// An OST's directory, locked by this process and ready for requests.
pub struct Store {
    rt: Rt,
    home: Home,
    files: Files,
    share: Share,
    buffers: gather::Pools,
    sealed: SealedObjects,
    clients: ClientList,
    epoch: Epoch,
    damaged: Arc<DamageList>,
    staging: Staging,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.home.dir().display())
    }
}

impl Store {
    /// Opens the directory `dir` of file system `fsname`, formatting it if it is missing or empty,
    /// and takes its lock. `join` returns the target's share of the device with this number
    /// ([`Sharing`](sheen_objects::Sharing)).
    ///
    /// # Errors
    /// Another process serves the directory, the directory belongs to another target, or the disk
    /// fails.
    pub async fn open(
        rt: &Rt,
        dir: &Path,
        fsname: &str,
        index: Option<u32>,
        open_files_max: usize,
        join: impl FnOnce(u64) -> Share,
    ) -> Result<Store, OssError> {
        let home = Home::open(rt, dir, fsname, index).await?;
        let dir = home.dir();
        let device = rt.disk().device(dir).map_err(OssError::io("stat", dir))?;
        let markers = OssError::io("read the markers of sealed objects in", dir);
        let sealed = SealedObjects::open(rt, dir).map_err(markers)?;
        let clients = ClientList::open(rt, dir).map_err(OssError::io("read", dir.join(clients::CLIENTS)))?;
        let durable = DurableObjects::open(rt, dir);
        let durable = durable.map_err(OssError::io("read the index of durable objects in", dir))?;
        let epoch = Epoch::open(rt, dir).map_err(OssError::io("read or write", dir.join(EPOCH)))?;
        let versions = Versions::new(rt, &epoch);
        let damaged = Arc::<DamageList>::default();
        Ok(Store {
            sealed,
            clients,
            epoch,
            files: Files::new(rt, dir, open_files_max, durable, versions, damaged.clone()),
            damaged,
            staging: Staging::new(rt, dir),
            share: join(device),
            buffers: gather::Pools::new(),
            rt: rt.clone(),
            home,
        })
    }

    /// Identity of the target that the directory belongs to.
    pub fn identity(&self) -> &Identity {
        self.home.identity()
    }

    /// Records the index that the MGS assigned to a new OST.
    pub fn set_index(&mut self, index: u32) -> Result<(), OssError> {
        self.home.set_index(index)
    }

    /// The durable list of clients.
    pub fn clients(&self) -> &ClientList {
        &self.clients
    }

    /// The epoch of the data, which changes when answered writes may be lost.
    pub fn epoch(&self) -> u64 {
        self.epoch.number()
    }

    /// Whether the epoch began with this start, so that no stored checksum counts.
    pub fn is_new_epoch(&self) -> bool {
        self.epoch.is_new()
    }

    /// Returns the epochs whose changes clients have to replay, the last one first.
    pub fn lost_epochs(&self) -> Vec<u64> {
        self.epoch.lost()
    }

    /// Returns the transno before the first one of this life.
    pub fn first_transno(&self) -> u64 {
        self.epoch.first_transno()
    }

    /// Returns the transno up to which all changes are durable.
    pub fn committed(&self) -> u64 {
        self.epoch.committed()
    }

    /// Makes everything durable, and records that this includes all changes up to this transno.
    ///
    /// # Errors
    /// Errors of the local file system. EIO: a sync failed before. It may have lost data, and the
    /// local file system reports this once.
    pub async fn commit(&self, transno: u64) -> sheen_wire::Result<()> {
        if self.epoch.has_failed() {
            return Err(Errno::EIO);
        }
        if let Err(errno) = self.sync_all().await {
            self.sync_failed();
            return Err(errno);
        }
        if transno > self.committed() {
            self.rt.block_in_place(|| self.epoch.commit(transno))?;
        }
        Ok(())
    }

    /// Records that the clients have replayed all changes of earlier epochs.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn replayed(&self) -> sheen_wire::Result<()> {
        Ok(self.rt.block_in_place(|| self.epoch.replayed())?)
    }

    /// Returns the objects that have changed since the last call.
    pub fn take_changed(&self) -> Vec<Fid> {
        self.files.take_changed()
    }

    /// Lets the next [`Store::take_changed`] return an object again.
    pub fn put_back_changed(&self, object: Fid) {
        self.files.put_back_changed(object);
    }

    /// Makes everything durable and releases the directory. No other method may be called after it.
    ///
    /// # Errors
    /// Errors of the local file system; the directory is released all the same.
    pub async fn close(&self) -> sheen_wire::Result<()> {
        self.clients.close().await;
        let synced = match self.sync(&[]).await {
            Ok(()) => Ok(self.epoch.stopped()?),
            Err(errno) => {
                self.sync_failed();
                Err(errno)
            }
        };
        self.home.release();
        synced
    }

    /// Records that data may be lost already: clients replay it after the next start.
    fn sync_failed(&self) {
        if let Err(error) = self.rt.block_in_place(|| self.epoch.failed()) {
            tracing::warn!(%error, "cannot record that a sync failed");
        }
    }

    /// Number of files open at the moment.
    pub fn open_files(&self) -> usize {
        self.files.open_count()
    }
}
