//! The directory of an MDT that no process serves, for `sheen fsck`.
//!
//! Opening the store completes what a crash left, as a start of the MDT does. Otherwise nothing is
//! changed without a repair.

use std::io;
use std::path::{Path, PathBuf};

use sheen_namespace::{Check, StoreError, salvage};
use sheen_rt::target_dir::{DirError, lock_dir};
use sheen_rt::{Disk, LockGuard, OpenOptions};
use sheen_wire::Time;

use crate::dir::{IDENTITY, STORE, check_store};
use crate::error::MdtError;
use crate::identity::Identity;
use crate::store::{CACHE_BYTES, RedbStore};

/// Bytes that a copy of the store reads at a time.
const COPY_BYTES: usize = 1 << 20;
/// Maximum number of copies of each kind in a directory.
const COPIES_MAX: u32 = 100;

/// The directory of an MDT, locked by this process.
pub struct OfflineMdt {
    disk: Disk,
    dir: PathBuf,
    identity: Identity,
    store: RedbStore,
    _lock: LockGuard,
}

impl OfflineMdt {
    /// Takes the lock of a directory that holds an MDT, and opens its store. Blocks.
    ///
    /// # Errors
    /// Another process serves it. It cannot be read, has lost its store, or a later release wrote
    /// it.
    pub fn open(disk: &Disk, dir: &Path) -> Result<OfflineMdt, MdtError> {
        let path = dir.join(IDENTITY);
        let bytes = disk.read(&path).map_err(|error| DirError::Io { path, error })?;
        let identity = Identity::parse(&bytes).map_err(|error| MdtError::Identity { path: dir.to_owned(), error })?;
        let lock = lock_dir(disk, dir)?;
        check_store(disk, &dir.join(STORE), true)?;
        let store = open(disk, dir)?;
        Ok(OfflineMdt { disk: disk.clone(), dir: dir.to_owned(), identity, store, _lock: lock })
    }

    /// Returns the identity of the MDT.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the store.
    pub fn store(&self) -> &RedbStore {
        &self.store
    }

    /// Checks the whole store. Blocks. For `progress` see [`Check::of`].
    ///
    /// # Errors
    /// The store is damaged, or cannot be read.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Check, MdtError> {
        Check::of(&self.store, progress).map_err(|error| failed(&self.dir, error))
    }

    /// Repairs the problems of the first stage that has any. Returns their number; 0: there is
    /// nothing that can be repaired. Blocks.
    ///
    /// # Errors
    /// The store is damaged, or cannot be read or written.
    pub fn repair(&self, check: &Check, now: Time) -> Result<usize, MdtError> {
        let Some((batch, count)) = check.repair(&self.store, now).map_err(|error| failed(&self.dir, error))? else {
            return Ok(0);
        };
        sheen_namespace::Store::commit(&self.store, &batch).map_err(|error| failed(&self.dir, error))?;
        Ok(count)
    }

    /// Replaces a damaged store by a new one with all records that can be read. Returns their
    /// number. The damaged store remains beside it. Blocks.
    ///
    /// # Errors
    /// The superblock cannot be read. The disk is full, or cannot be written.
    pub fn salvage(&mut self) -> Result<u64, MdtError> {
        let path = self.dir.join(STORE);
        let new = self.dir.join(format!("{STORE}.new"));
        match self.disk.remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DirError::Io { path: new, error }.into());
            }
            _ => {}
        }
        let target =
            RedbStore::open(&self.disk, &new, CACHE_BYTES).map_err(|error| MdtError::of_store(new.clone(), error))?;
        let records = salvage(&self.store, &target).map_err(|error| failed(&self.dir, error))?;
        target.close().map_err(|error| MdtError::of_store(new.clone(), error))?;
        self.store.close().map_err(|error| failed(&self.dir, error))?;
        let aside = free_name(&self.disk, &self.dir, "damaged")?;
        // The second name exists before the first one is replaced, so that a crash loses no store.
        let named = self.disk.hard_link(&path, &aside).and_then(|()| self.disk.rename(&new, &path));
        named.map_err(|error| DirError::Io { path, error })?;
        self.store = open(&self.disk, &self.dir)?;
        Ok(records)
    }

    /// Copies the store beside itself, so that a repair can be taken back. Returns the path of the
    /// copy. Blocks.
    ///
    /// # Errors
    /// The disk is full, or cannot be read or written.
    pub fn copy_store(&mut self) -> Result<PathBuf, MdtError> {
        // A closed store is complete in its file.
        self.store.close().map_err(|error| failed(&self.dir, error))?;
        let copied = copy(&self.disk, &self.dir);
        self.store = open(&self.disk, &self.dir)?;
        Ok(copied?)
    }
}

fn open(disk: &Disk, dir: &Path) -> Result<RedbStore, MdtError> {
    RedbStore::open(disk, &dir.join(STORE), CACHE_BYTES).map_err(|error| failed(dir, error))
}

fn failed(dir: &Path, error: StoreError) -> MdtError {
    MdtError::of_store(dir.join(STORE), error)
}

/// Returns an unused name for another file of the store.
fn free_name(disk: &Disk, dir: &Path, what: &str) -> Result<PathBuf, DirError> {
    let is_free = |path: &PathBuf| disk.metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let found = (1..=COPIES_MAX).map(|n| dir.join(format!("{STORE}.{what}.{n}"))).find(is_free);
    found.ok_or_else(|| DirError::Io { path: dir.join(STORE), error: io::ErrorKind::AlreadyExists.into() })
}

fn copy(disk: &Disk, dir: &Path) -> Result<PathBuf, DirError> {
    let from = dir.join(STORE);
    let to = free_name(disk, dir, "before-repair")?;
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| DirError::Io { path, error }
    };
    let source = disk.open(&from, OpenOptions::READ).map_err(io(&from))?;
    let target = disk.open(&to, OpenOptions::CREATE).map_err(io(&to))?;
    let copied = copy_bytes(&source, &target);
    if copied.is_err() {
        // An incomplete copy is useless; the error of the copy counts.
        let _ = disk.remove_file(&to);
    }
    copied.map_err(io(&to))?;
    Ok(to)
}

fn copy_bytes(source: &sheen_rt::File, target: &sheen_rt::File) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let read = source.read_at(offset, &mut buffer)?;
        if read == 0 {
            return target.sync_data_blocking();
        }
        target.write_all_at(offset, &buffer[..read])?;
        offset += read as u64;
    }
}
