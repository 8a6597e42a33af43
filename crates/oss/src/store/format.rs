//! Format of an OST's directory: the identity of its target, and the lock on the directory.
//!
//! A new directory is formatted in an order that survives a crash at any point:
//! 1. The directory of objects is made durable.
//! 2. The identity (with the uuid) is made durable.
//! 3. The target registers with the MGS.
//! 4. The index that the MGS assigned is added to the identity.
//!
//! So a target that crashes in between registers again under the same uuid, and gets the same
//! index.
//!
//! A directory with an identity but without a directory of objects has lost its objects. The OST
//! refuses it: a missing object counts as one that was never written, so all files would read as
//! zeros there.

use std::{
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use sheen_objects::{Identity, name};
use sheen_rt::{
    LockGuard, OpenDir, Rt,
    target_dir::{LOCK, lock_dir, sync_names},
};

use crate::OssError;

/// The identity file.
pub const IDENTITY: &str = "target";

/// An OST's directory, locked by this process.
pub struct Home {
    rt: Rt,
    dir: PathBuf,
    held: OpenDir,
    identity: Identity,
    lock: Mutex<Option<LockGuard>>,
}

impl Home {
    /// Locks the directory, formatting it if it is missing or empty.
    pub async fn open(rt: &Rt, dir: &Path, fsname: &str, index: Option<u32>) -> Result<Home, OssError> {
        let disk = rt.disk();
        let lock = lock_dir(&disk, dir)?;
        let held = disk.open_dir(dir).map_err(OssError::io("open", dir))?;
        let path = dir.join(IDENTITY);
        let objects = dir.join(name::ROOT);
        let identity = match disk.read(&path) {
            Ok(bytes) => {
                let identity = known(dir, &path, &bytes, fsname, index)?;
                has_objects(rt, &objects)?;
                identity
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                refuse_foreign_files(rt, dir)?;
                Identity { fsname: fsname.into(), index, uuid: uuid(rt) }
            }
            Err(e) => return Err(OssError::io("read", &path)(e)),
        };
        disk.create_dir_all(&objects).map_err(OssError::io("create", &objects))?;
        sync_names(&disk, dir).await?;
        let home = Home { rt: rt.clone(), dir: dir.into(), held, identity, lock: Mutex::new(Some(lock)) };
        home.write()?;
        Ok(home)
    }

    /// Path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory itself, even if another file system has been mounted over its path since.
    pub fn held(&self) -> &OpenDir {
        &self.held
    }

    /// Identity of the target that the directory belongs to.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Releases the lock, so that another process may serve the directory.
    pub fn release(&self) {
        self.lock.lock().take();
    }

    /// Writes the index to the identity file, durably.
    pub fn set_index(&mut self, index: u32) -> Result<(), OssError> {
        if self.identity.index == Some(index) {
            return Ok(());
        }
        self.identity.index = Some(index);
        self.write()
    }

    fn write(&self) -> Result<(), OssError> {
        let path = self.dir.join(IDENTITY);
        let text = self.identity.to_string();
        let disk = self.rt.disk();
        if disk.read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        disk.write_atomic(&path, text.as_bytes()).map_err(OssError::io("write", path))
    }
}

/// Returns the identity of a formatted directory if it matches `fsname` and `index`.
fn known(dir: &Path, path: &Path, bytes: &[u8], fsname: &str, index: Option<u32>) -> Result<Identity, OssError> {
    let mut found = Identity::parse(bytes).map_err(|source| OssError::Identity { path: path.to_owned(), source })?;
    if found.fsname != fsname {
        return Err(OssError::Fsname { dir: dir.into(), found: found.fsname, wanted: fsname.into() });
    }
    match (found.index, index) {
        (Some(found), Some(wanted)) if found != wanted => Err(OssError::Index { dir: dir.into(), found, wanted }),
        _ => {
            found.index = found.index.or(index);
            Ok(found)
        }
    }
}

/// Refuses a formatted directory without its directory of objects.
fn has_objects(rt: &Rt, objects: &Path) -> Result<(), OssError> {
    match rt.disk().metadata(objects) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(OssError::ObjectsMissing(objects.into())),
        Err(e) => Err(OssError::io("stat", objects)(e)),
    }
}

/// Refuses to format a directory that holds other files: it is likely not the one that was meant.
fn refuse_foreign_files(rt: &Rt, dir: &Path) -> Result<(), OssError> {
    let entries = rt.disk().read_dir(dir).map_err(OssError::io("read", dir))?;
    // Allowed are leftovers of a format that crashed, and `lost+found` of ext4.
    let ours = |name: &[u8]| [LOCK.as_bytes(), name::ROOT.as_bytes(), b"lost+found", b".target.tmp"].contains(&name);
    if entries.iter().all(|e| ours(e.name.as_encoded_bytes())) { Ok(()) } else { Err(OssError::NotEmpty(dir.into())) }
}

/// Returns a random uuid (version 4) as text.
fn uuid(rt: &Rt) -> String {
    let (a, b) = (rt.random_u64(), rt.random_u64());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        (b >> 48) & 0x3fff | 0x8000,
        b & 0xffff_ffff_ffff
    )
}
