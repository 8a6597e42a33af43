//! The copy of a lost object that is in progress, in `DIR/copies`.
//!
//! Invariants:
//! * there is at most one copy, and its file has a name of its own. So no request reads it;
//! * a copy that began is not emptied when its beginning is repeated;
//! * a copy that ends in any way removes its name. A new life of the OST removes what is left;
//! * no request opens a file that exists. A copy that became the object is one file with it, and a
//!   repeated beginning must not empty it;
//! * a copy ends with the connection of the MDT that began it, or when nothing uses it for long.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::{Disk, File, Instant, OpenOptions, Rt};
use sheen_wire::{Bulk, Errno, Fid, Result};
use tracing::debug;

/// Directory of copies, in the OST's directory.
const DIR: &str = "copies";
/// Time without a request after which a copy ends, and bytes for which it is one second longer. The
/// MDT reads holes of the source, and sends nothing for them.
const IDLE_MAX: Duration = Duration::from_secs(600);
const IDLE_SPEED: u64 = 25 << 20;

/// The copy of an OST.
pub(super) struct Staging {
    rt: Rt,
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
    /// Id of the export that began it.
    export: u64,
    /// Time of the last request.
    used: Instant,
}

impl Copied {
    fn is(&self, object: Fid, number: u64) -> bool {
        (self.object, self.number) == (object, number)
    }

    fn is_idle(&self, now: Instant) -> bool {
        now.since(self.used) >= IDLE_MAX + Duration::from_secs(self.size / IDLE_SPEED)
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
        Staging { rt: rt.clone(), disk, dir, copy: Mutex::default() }
    }

    /// Begins a copy of `size` bytes for an export, and discards the former one. If it has begun,
    /// it only passes to the export.
    ///
    /// # Errors
    /// EEXIST: a copy in use has the number. Errors of the local file system.
    pub fn begin(&self, object: Fid, number: u64, size: u64, export: u64) -> io::Result<()> {
        let (mut copy, used) = (self.copy.lock(), self.rt.now());
        if let Some(copy) = copy.as_mut().filter(|copy| copy.is(object, number)) {
            (copy.export, copy.used) = (export, used);
            return Ok(());
        }
        self.disk.create_dir_all(&self.dir)?;
        let path = self.dir.join(format!("{number:x}"));
        let file = self.disk.open(&path, OpenOptions::CREATE_NEW)?;
        let begun = Copied { disk: self.disk.clone(), path, file, size, object, number, export, used };
        *copy = None;
        begun.file.set_len(size)?;
        *copy = Some(begun);
        Ok(())
    }

    /// Writes bytes to offset `at` of a copy.
    ///
    /// # Errors
    /// ESTALE: there is no such copy. EINVAL: it ends before. Errors of the local file system.
    pub fn write(&self, object: Fid, number: u64, at: u64, bytes: &Bulk) -> Result<()> {
        let mut copy = self.copy.lock();
        let copy = copy.as_mut().filter(|copy| copy.is(object, number)).ok_or(Errno::ESTALE)?;
        copy.used = self.rt.now();
        if at.saturating_add(bytes.len() as u64) > copy.size {
            return Err(Errno::EINVAL);
        }
        Ok(copy.file.write_all_vectored_at(at, bytes.segments())?)
    }

    /// Takes a copy out, to use or to discard it.
    pub fn take(&self, object: Fid, number: u64) -> Option<Copied> {
        self.copy.lock().take_if(|copy| copy.is(object, number))
    }

    /// Takes out the copy that this export began, to discard it.
    pub fn take_of(&self, export: u64) -> Option<Copied> {
        self.copy.lock().take_if(|copy| copy.export == export)
    }

    /// Takes out a copy that no request has used for long, to discard it.
    pub fn take_idle(&self) -> Option<Copied> {
        let now = self.rt.now();
        self.copy.lock().take_if(|copy| copy.is_idle(now))
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
        staging.begin(OBJECT, 1, 8, 1).unwrap();
        staging.write(OBJECT, 1, 2, &bytes).unwrap();
        staging.begin(OBJECT, 1, 8, 1).unwrap();
        assert_eq!(staging.write(OBJECT, 1, 5, &bytes), Err(Errno::EINVAL));
        assert_eq!(staging.write(OBJECT, 2, 0, &bytes), Err(Errno::ESTALE));
        assert!(staging.take(OBJECT, 2).is_none());
        let copy = staging.take(OBJECT, 1).unwrap();
        assert_eq!((disk.read(&copy.path).unwrap(), names()), (b"\0\0data\0\0".to_vec(), 1));
        drop(copy);
        assert_eq!(names(), 0);
        staging.begin(OBJECT, 1, 8, 1).unwrap();
        staging.write(OBJECT, 1, 0, &bytes).unwrap();
        staging.begin(OBJECT, 2, 3, 1).unwrap();
        assert_eq!((staging.write(OBJECT, 1, 0, &bytes), names()), (Err(Errno::ESTALE), 1));
        assert_eq!(disk.read(&staging.take(OBJECT, 2).unwrap().path).unwrap(), [0; 3]);
        staging.begin(OBJECT, 3, 8, 1).unwrap();
        let again = Staging::new(&rt, Path::new("/ost"));
        assert_eq!((again.write(OBJECT, 3, 0, &bytes), names()), (Err(Errno::ESTALE), 0));
    }

    #[test]
    fn repeated_begin_leaves_the_file_that_became_the_object() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let (disk, bytes) = (rt.disk(), Bulk::from(Bytes::from_static(b"data")));
        disk.create_dir_all("/ost").unwrap();
        let staging = Staging::new(&rt, Path::new("/ost"));
        staging.begin(OBJECT, 1, 4, 1).unwrap();
        staging.write(OBJECT, 1, 0, &bytes).unwrap();
        let copy = staging.take(OBJECT, 1).unwrap();
        disk.hard_link(&copy.path, "/ost/object").unwrap();
        let begin = |object| staging.begin(object, 1, 4, 1).map_err(|e| e.kind());
        assert_eq!(begin(OBJECT), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(disk.read("/ost/object").unwrap(), b"data");
        drop(copy);
        assert_eq!(disk.read("/ost/object").unwrap(), b"data");
        begin(OBJECT).unwrap();
        assert_eq!(begin(Fid::new(OBJECT.seq, 2)), Err(io::ErrorKind::AlreadyExists), "a number drawn twice");
        staging.write(OBJECT, 1, 0, &bytes).unwrap();
    }

    #[test]
    fn copy_ends_with_its_export_or_when_it_is_idle() {
        let sim = Sim::new(1, SimConfig::default());
        sim.run(async {
            let rt = sim.rt(1);
            rt.disk().create_dir_all("/ost").unwrap();
            let staging = Staging::new(&rt, Path::new("/ost"));
            let bytes = Bulk::from(Bytes::from_static(b"data"));
            staging.begin(OBJECT, 1, 4, 1).unwrap();
            staging.begin(OBJECT, 1, 4, 2).unwrap();
            assert!(staging.take_of(1).is_none(), "another export has repeated the beginning");
            assert!(staging.take_of(2).is_some() && staging.take_of(2).is_none());
            staging.begin(OBJECT, 2, 10 * IDLE_SPEED, 2).unwrap();
            for _ in 0..2 {
                rt.sleep(IDLE_MAX + Duration::from_secs(9)).await;
                assert!(staging.take_idle().is_none());
                staging.write(OBJECT, 2, 0, &bytes).unwrap();
            }
            rt.sleep(IDLE_MAX + Duration::from_secs(10)).await;
            assert!(staging.take_idle().is_some() && staging.take_idle().is_none());
            assert_eq!(rt.disk().read_dir("/ost/copies").unwrap().len(), 0);
        })
        .unwrap();
    }
}
