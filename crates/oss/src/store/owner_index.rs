//! The owner index of an OST, in `DIR/owners`: file and owner of each object, in records
//! ([`OwnerRecord`]) at the places of their ids. There is one file for each sequence, and for each
//! version of it: objects on an MDT have versions.
//!
//! Invariants:
//! * a record changes under the lock of its object's shard;
//! * an OST of an earlier release has no index. Its objects have records of zeros.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_objects::{OwnerRecord, name, owner_record::RECORD_BYTES};
use sheen_rt::{Disk, File, OpenOptions};
use sheen_wire::{Fid, ost::Allocate};

/// Directory of the index, in the OST's directory.
const DIR: &str = "owners";
/// Files of the index that stay open.
const OPEN_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(32 - 1);
/// Number of files from which a sync of the whole file system is cheaper than one for each.
const SYNC_EACH_MAX: usize = 4;
/// Bytes of zeros that are written at a time.
const ZEROS: usize = 64 << 10;

/// Sequence and version of the objects in a file of the index.
type Part = (u64, u32);

/// The index.
pub(crate) struct OwnerIndex {
    disk: Disk,
    root: PathBuf,
    dir: PathBuf,
    files: Mutex<LruCache<Part, File, FxBuildHasher>>,
    /// Whether names of files may not be durable.
    has_new_files: AtomicBool,
}

fn part(object: Fid) -> Part {
    (object.seq, object.ver)
}

impl OwnerIndex {
    /// Returns the index of the OST in the directory `root`. Reads nothing.
    pub fn new(disk: Disk, root: &Path) -> OwnerIndex {
        OwnerIndex {
            disk,
            root: root.to_owned(),
            dir: root.join(DIR),
            files: Mutex::new(LruCache::with_hasher(OPEN_MAX, FxBuildHasher)),
            has_new_files: AtomicBool::new(true), // a killed process may not have synced them
        }
    }

    /// Returns the record of an object.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn read(&self, object: Fid) -> io::Result<OwnerRecord> {
        let Some(file) = self.existing(part(object))? else { return Ok(OwnerRecord::default()) };
        let mut bytes = [0; RECORD_BYTES];
        file.read_at(OwnerRecord::place(object), &mut bytes)?; // zeros past the end
        Ok(OwnerRecord::decode(&bytes))
    }

    /// Writes the record of an object. Durable after [`OwnerIndex::sync`].
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn write(&self, object: Fid, record: &OwnerRecord) -> io::Result<()> {
        let file = match self.existing(part(object))? {
            Some(file) => file,
            None => self.create(part(object))?,
        };
        file.write_all_at(OwnerRecord::place(object), &record.encode())
    }

    /// Clears the record of an object.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn clear(&self, object: Fid) -> io::Result<()> {
        if self.read(object)? == OwnerRecord::default() {
            return Ok(());
        }
        self.write(object, &OwnerRecord::default())
    }

    /// Clears the records of the objects of a sequence with `first <= oid <= last`, also of those
    /// that do not exist.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn clear_range(&self, seq: u64, first: u32, last: u32) -> io::Result<()> {
        let Some(file) = self.existing((seq, 0))? else { return Ok(()) };
        let mut at = OwnerRecord::place(Fid::new(seq, first));
        let end = (OwnerRecord::place(Fid::new(seq, last)) + RECORD_BYTES as u64).min(file.len()?);
        if at >= end || file.allocate(Allocate::PunchHole, at, end - at).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; ZEROS];
        while at < end {
            let len = (end - at).min(ZEROS as u64);
            file.write_all_at(at, &zeros[..len as usize])?;
            at += len;
        }
        Ok(())
    }

    /// Makes the records of these objects durable.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub async fn sync(&self, objects: impl Iterator<Item = Fid>) -> io::Result<()> {
        let mut parts: Vec<Part> = objects.map(part).collect();
        parts.sort_unstable();
        parts.dedup();
        if parts.len() > SYNC_EACH_MAX {
            return self.disk.sync_fs(&self.root).await;
        }
        for part in parts {
            if let Some(file) = self.existing(part)? {
                file.sync_data().await?;
            }
        }
        if self.has_new_files.swap(false, SeqCst)
            && let Err(e) = self.sync_names().await
        {
            self.has_new_files.store(true, SeqCst);
            return Err(e);
        }
        Ok(())
    }

    async fn sync_names(&self) -> io::Result<()> {
        match self.disk.sync_dir(&self.dir).await {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            synced => synced?,
        }
        self.disk.sync_dir(&self.root).await
    }

    /// Returns the file of a part, if it exists.
    fn existing(&self, part: Part) -> io::Result<Option<File>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&part) {
            return Ok(Some(file.clone()));
        }
        match self.disk.open(self.path(part), OpenOptions::READ_WRITE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
            Ok(file) => {
                files.put(part, file.clone());
                Ok(Some(file))
            }
        }
    }

    fn create(&self, part: Part) -> io::Result<File> {
        // A removed directory of an OST must not be made again.
        self.disk.metadata(self.root.join(name::ROOT))?;
        self.disk.create_dir_all(&self.dir)?;
        let file = self.disk.open(self.path(part), OpenOptions::CREATE)?;
        self.has_new_files.store(true, SeqCst);
        Ok(file)
    }

    fn path(&self, (seq, ver): Part) -> PathBuf {
        self.dir.join(if ver == 0 { format!("{seq:x}") } else { format!("{seq:x}:{ver:x}") })
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::quota::Owner;

    use super::*;

    #[test]
    fn synced_owner_records_survive_a_power_failure() {
        let sim = Sim::new(1, SimConfig::default());
        sim.run(async {
            let root = Path::new("/ost");
            sim.rt(1).disk().create_dir_all(root.join(name::ROOT)).unwrap();
            sim.rt(1).disk().sync_fs("/").await.unwrap();
            let index = OwnerIndex::new(sim.rt(1).disk(), root);
            let object = |oid, ver| Fid { seq: 0x2_8000_0401, oid, ver };
            let record = |uid| OwnerRecord { file: Fid::ZERO, owner: Some(Owner { uid, ..Owner::default() }) };
            let all = [(object(1, 0), 5), (object(900, 0), 6), (object(1, 3), 7)];
            assert_eq!(index.read(object(1, 0)).unwrap(), OwnerRecord::default());
            index.clear(object(1, 0)).unwrap();
            all.iter().for_each(|(object, uid)| index.write(*object, &record(*uid)).unwrap());
            index.sync(all.iter().map(|(object, _)| *object)).await.unwrap();
            sim.crash_host(1);
            let index = OwnerIndex::new(sim.rt(1).disk(), root);
            for (object, uid) in all {
                assert_eq!(index.read(object).unwrap(), record(uid));
            }
            index.clear(object(1, 3)).unwrap();
            index.clear_range(0x2_8000_0401, 2, 900).unwrap();
            index.clear_range(0x2_8000_0402, 0, u32::MAX).unwrap();
            let left = all.map(|(object, _)| index.read(object).unwrap().owner.is_some());
            assert_eq!(left, [true, false, false]);
        })
        .unwrap();
    }
}
