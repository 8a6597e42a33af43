//! The disk of a simulated host, its open directories, and its locks.

use std::{io, path::Path};

use sheen_wire::{StatFs, Time};

use super::{file::File, host::Host, state::State, trace::Note, tree::DiskState};
use crate::metadata::{DirEntry, Metadata, OpenOptions};

impl State {
    /// Simulates a power failure of the host's disk: see `tree` and `inode`.
    pub(crate) fn disk_crash(&mut self, host: u32) {
        let keep_max = self.host(host).disk.unsynced_names();
        let survived = self.rng.usize(0..=keep_max);
        let files = self.host(host).disk.crash(survived);
        self.note(Note::Crash { host, names_durable: survived, names_lost: keep_max - survived });
        for inode in files {
            let (survived, lost, torn) = inode.crash(&mut self.rng);
            self.note(Note::Torn { file: inode.id, survived, lost, torn });
        }
    }
}

impl Host {
    pub(crate) fn disk(&self) -> Disk {
        Disk(self.clone())
    }
}

/// The disk as one life of the host uses it.
#[derive(Clone)]
pub(crate) struct Disk(Host);

impl Disk {
    fn with<R>(&self, f: impl FnOnce(&mut DiskState, Time) -> io::Result<R>) -> io::Result<R> {
        self.0.with(|s| {
            let now = s.wall();
            f(&mut s.host(self.0.id).disk, now)
        })
    }

    pub(crate) fn open(&self, path: &Path, o: OpenOptions) -> io::Result<File> {
        let inode = self.with(|d, now| d.open(path, o, now))?;
        Ok(File { host: self.0.clone(), inode, read: o.read, write: o.write })
    }

    pub(crate) fn open_append(&self, path: &Path) -> io::Result<File> {
        self.open(path, OpenOptions { create: true, write: true, ..OpenOptions::default() })
    }

    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<OpenDir> {
        let id = self.with(|d, _| d.find_dir(path))?;
        Ok(OpenDir { disk: self.clone(), id })
    }

    pub(crate) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with(|d, _| d.create_dir_all(path))
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.with(|d, _| d.remove_file(path))
    }

    pub(crate) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with(|d, _| d.remove_dir_all(path))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|d, _| d.rename(from, to))
    }

    pub(crate) fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|d, _| d.hard_link(from, to))
    }

    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.with(|d, _| d.read_dir(path))
    }

    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.with(|d, _| d.metadata(path))
    }

    pub(crate) fn statvfs(&self, path: &Path) -> io::Result<StatFs> {
        self.metadata(path)?;
        self.with(|d, _| Ok(d.statvfs()))
    }

    pub(crate) fn device(&self, path: &Path) -> io::Result<u64> {
        self.metadata(path)?;
        self.with(|d, _| Ok(d.device()))
    }

    pub(crate) fn mount_id(&self, path: &Path) -> io::Result<u64> {
        self.metadata(path)?;
        self.with(|d, _| Ok(d.mounts()))
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.with(|d, _| d.read(path))
    }

    pub(crate) fn write_atomic(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.with(|d, now| d.write_atomic(path, content, now))
    }

    pub(crate) async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, end) = self.with(|d, _| Ok((d.find_dir(path)?, d.ops_done())))?;
        self.0.fsync_delay_elapsed().await?;
        self.0.with(|s| {
            let ops = s.host(self.0.id).disk.commit(end, |change| change.touches(dir));
            s.note(Note::SyncNames { host: self.0.id, ops });
            Ok(())
        })
    }

    pub(crate) async fn sync_fs(&self, path: &Path) -> io::Result<()> {
        self.metadata(path)?;
        let end = self.with(|d, _| Ok(d.ops_done()))?;
        self.0.fsync_delay_elapsed().await?;
        self.0.with(|s| {
            let disk = &mut s.host(self.0.id).disk;
            let files: usize = disk.files().map(|inode| inode.commit_before(end)).sum();
            let ops = files + disk.commit(end, |_| true);
            s.note(Note::SyncNames { host: self.0.id, ops });
            Ok(())
        })
    }

    pub(crate) fn try_lock(&self, path: &Path) -> io::Result<Lock> {
        let file = self.open(path, OpenOptions::CREATE)?;
        let inode = file.inode.id;
        self.with(|d, _| if d.lock(inode) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) })?;
        Ok(Lock { disk: self.clone(), inode })
    }
}

/// A directory opened by one life of the host.
#[derive(Clone)]
pub(crate) struct OpenDir {
    disk: Disk,
    id: u64,
}

impl OpenDir {
    pub(crate) fn statvfs(&self) -> io::Result<StatFs> {
        self.disk.with(|d, _| Ok(d.statvfs()))
    }

    pub(crate) async fn sync_fs(&self) -> io::Result<()> {
        self.disk.sync_fs(Path::new("/")).await
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.disk.with(|d, _| Ok(d.is_removed(self.id))).unwrap_or(false)
    }
}

/// A held lock. Released on drop or by a crash.
pub(crate) struct Lock {
    disk: Disk,
    inode: u64,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.disk.with(|d, _| {
            d.unlock(self.inode);
            Ok(())
        });
    }
}
