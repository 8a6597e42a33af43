//! The copy of a lost object that is in progress, in `DIR/copies`.
//!
//! Invariants:
//! * there is at most one copy, and its file has a name of its own. So no request reads it;
//! * a copy that began is not emptied when its beginning is repeated;
//! * a copy that ends in any way removes its name. A new life of the OST removes what is left.

use std::{
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use sheen_rt::{Disk, File, OpenOptions, Rt};
use sheen_wire::{Bulk, Errno, Fid, Result};
use tracing::debug;

/// Directory of copies, in the OST's directory.
const DIR: &str = "copies";

/// The copy of an OST.
pub(super) struct Staging {
    disk: Disk,
    dir: PathBuf,
    copy: Mutex<Option<Copied>>,
}

/// A copy of a lost object. Its name is removed on drop.
pub(super) struct Copied {
    disk: Disk,
    /// Path of its file.
    pub path: PathBuf,
    /// Its file, open for writing.
    pub file: File,
    /// Size of the object in bytes.
    pub size: u64,
    object: Fid,
    number: u64,
}

impl Copied {
    fn is(&self, object: Fid, number: u64) -> bool {
        (self.object, self.number) == (object, number)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Err(e) = self.disk.remove_file(&self.path) {
            debug!("cannot remove {}: {e}; the next start of the OST removes it", self.path.display());
        }
    }
}

impl Staging {
    /// Returns the copy of the OST in the directory `ost`: there is none. Removes those of a former
    /// life.
    pub fn new(rt: &Rt, ost: &Path) -> Staging {
        let (disk, dir) = (rt.disk(), ost.join(DIR));
        match disk.remove_dir_all(&dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => debug!("cannot remove {}: {e}", dir.display()),
            _ => {}
        }
        Staging { disk, dir, copy: Mutex::default() }
    }

    /// Begins a copy of `size` bytes, and discards the former one. Does nothing if it has begun.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn begin(&self, object: Fid, number: u64, size: u64) -> io::Result<()> {
        let mut copy = self.copy.lock();
        if copy.as_ref().is_some_and(|copy| copy.is(object, number)) {
            return Ok(());
        }
        *copy = None;
        self.disk.create_dir_all(&self.dir)?;
        let path = self.dir.join(format!("{number:x}"));
        let file = self.disk.open(&path, OpenOptions::CREATE)?;
        let begun = Copied { disk: self.disk.clone(), path, file, size, object, number };
        begun.file.set_len(0)?; // a number that was drawn twice
        begun.file.set_len(size)?;
        *copy = Some(begun);
        Ok(())
    }

    /// Writes bytes to offset `at` of a copy.
    ///
    /// # Errors
    /// ESTALE: there is no such copy. EINVAL: it ends before. Errors of the local file system.
    pub fn write(&self, object: Fid, number: u64, at: u64, bytes: &Bulk) -> Result<()> {
        let copy = self.copy.lock();
        let copy = copy.as_ref().filter(|copy| copy.is(object, number)).ok_or(Errno::ESTALE)?;
        if at.saturating_add(bytes.len() as u64) > copy.size {
            return Err(Errno::EINVAL);
        }
        Ok(copy.file.write_all_vectored_at(at, bytes.segments())?)
    }

    /// Takes a copy out, to use or to discard it.
    pub fn take(&self, object: Fid, number: u64) -> Option<Copied> {
        self.copy.lock().take_if(|copy| copy.is(object, number))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    const OBJECT: Fid = Fid::new(0x2_8000_0401, 1);

    #[test]
    fn copy_is_emptied_by_another_one_only_and_leaves_no_file() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let (disk, bytes) = (rt.disk(), Bulk::from(Bytes::from_static(b"data")));
        let names = || disk.read_dir("/ost/copies").map_or(0, |names| names.len());
        disk.create_dir_all("/ost").unwrap();
        let staging = Staging::new(&rt, Path::new("/ost"));
        assert_eq!(staging.write(OBJECT, 1, 0, &bytes), Err(Errno::ESTALE));
        staging.begin(OBJECT, 1, 8).unwrap();
        staging.write(OBJECT, 1, 2, &bytes).unwrap();
        staging.begin(OBJECT, 1, 8).unwrap();
        assert_eq!(staging.write(OBJECT, 1, 5, &bytes), Err(Errno::EINVAL));
        assert_eq!(staging.write(OBJECT, 2, 0, &bytes), Err(Errno::ESTALE));
        assert!(staging.take(OBJECT, 2).is_none());
        let copy = staging.take(OBJECT, 1).unwrap();
        assert_eq!((disk.read(&copy.path).unwrap(), names()), (b"\0\0data\0\0".to_vec(), 1));
        drop(copy);
        assert_eq!(names(), 0);
        staging.begin(OBJECT, 1, 8).unwrap();
        staging.write(OBJECT, 1, 0, &bytes).unwrap();
        staging.begin(OBJECT, 2, 3).unwrap();
        assert_eq!((staging.write(OBJECT, 1, 0, &bytes), names()), (Err(Errno::ESTALE), 1));
        assert_eq!(disk.read(&staging.take(OBJECT, 2).unwrap().path).unwrap(), [0; 3]);
        staging.begin(OBJECT, 3, 8).unwrap();
        let again = Staging::new(&rt, Path::new("/ost"));
        assert_eq!((again.write(OBJECT, 3, 0, &bytes), names()), (Err(Errno::ESTALE), 0));
    }
}
