//! The directory of an OST that no process serves, for `sheen fsck`. Nothing in it is changed.

use std::path::{Path, PathBuf};

use sheen_objects::{
    Identity,
    name::{self, Dir},
};
use sheen_rt::{Disk, LockGuard, target_dir::lock_dir};
use sheen_wire::{Fid, ost::StoredObject};

use crate::{
    OssError,
    store::{format::IDENTITY, names, owner_index::OwnerIndex},
};

/// The directory of an OST, locked by this process.
pub struct OfflineOst {
    disk: Disk,
    dir: PathBuf,
    identity: Identity,
    _lock: LockGuard,
}

impl OfflineOst {
    /// Takes the lock of a directory that holds an OST.
    ///
    /// # Errors
    /// Another process serves it. It cannot be read, or a later release wrote it.
    pub fn open(disk: &Disk, dir: &Path) -> Result<OfflineOst, OssError> {
        let path = dir.join(IDENTITY);
        let bytes = disk.read(&path).map_err(OssError::io("read", &path))?;
        let identity = Identity::parse(&bytes).map_err(|source| OssError::Identity { path, source })?;
        let lock = lock_dir(disk, dir)?;
        Ok(OfflineOst { disk: disk.clone(), dir: dir.to_owned(), identity, _lock: lock })
    }

    /// Returns the identity of the OST.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Calls `f` with each object and what is stored of it. One directory's names are in memory at
    /// a time.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn for_each_object(&self, mut f: impl FnMut(Fid, StoredObject)) -> Result<(), OssError> {
        let owners = OwnerIndex::new(self.disk.clone(), &self.dir);
        let seqs = names::sequences(&self.disk, &self.dir).map_err(OssError::io("read", self.dir.join(name::ROOT)))?;
        for dir in seqs.into_iter().flat_map(Dir::all) {
            let objects =
                names::list(&self.disk, &self.dir, dir).map_err(OssError::io("read", self.dir.join(dir.path())))?;
            for object in objects {
                let path = self.dir.join(name::path(object));
                let found = self.disk.metadata(&path).map_err(OssError::io("stat", path))?;
                // As on a running OST, an owner that cannot be read counts as unknown. The check of
                // everything else must not depend on the index.
                let owner = owners.read(object).ok().and_then(|record| record.owner);
                f(object, StoredObject { size: found.len, owner });
            }
        }
        Ok(())
    }
}
