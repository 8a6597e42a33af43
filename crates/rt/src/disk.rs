//! Files and directories of this host.
//!
//! Reads and writes are synchronous calls on the calling thread. They end in the page cache, where
//! a task switch would cost more than the call. Calls that make data durable wait for the device
//! and are asynchronous.
//!
//! After a crash of the host the following survives, and anything else may survive in part:
//!
//! * the content of a file written before a [`File::sync_data`] that has returned;
//! * the entries of a directory that were created, renamed or removed before a
//!   [`Disk::sync_dir`] that has returned.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use bytes::Bytes;
use sheen_wire::{
    StatFs, Time,
    ost::{Allocate, Seek},
};

use crate::{
    metadata::{DirEntry, Metadata, OpenOptions},
    real, sim,
};

/// The host's disk. Clones refer to the same disk. Paths are absolute, or relative to the process's
/// working directory. In a simulation both start at the host's root.
///
/// All calls fail with the errno of the system call that they name.
#[derive(Clone)]
pub struct Disk(pub(crate) DiskInner);

#[derive(Clone)]
pub(crate) enum DiskInner {
    Real(real::disk::Disk),
    Sim(sim::Disk),
}

/// An open directory. Calls reach this directory even if another one was mounted over its
/// path or renamed to it. Clones refer to the same directory.
///
/// All calls fail with the errno of the system call that they name.
#[derive(Clone)]
pub struct OpenDir(pub(crate) OpenDirInner);

#[derive(Clone)]
pub(crate) enum OpenDirInner {
    Real(real::disk::OpenDir),
    Sim(sim::OpenDir),
}

/// An advisory lock on a file. Released on drop, and when the process ends in any way.
pub struct LockGuard(#[allow(dead_code, reason = "held for its drop")] pub(crate) LockInner);

#[allow(dead_code, reason = "held for its drop")]
pub(crate) enum LockInner {
    Real(std::fs::File),
    Sim(sim::Lock),
}

macro_rules! on_disk {
    ($self:ident, $d:ident => $call:expr) => {
        match &$self.0 {
            DiskInner::Real($d) => $call,
            DiskInner::Sim($d) => $call,
        }
    };
}

#[allow(clippy::missing_errors_doc, reason = "said once, at the type")]
impl Disk {
    /// Opens or creates a file.
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> io::Result<File> {
        let path = path.as_ref();
        match &self.0 {
            DiskInner::Real(d) => d.open(path, options).map(|f| File(FileInner::Real(f))),
            DiskInner::Sim(d) => d.open(path, options).map(|f| File(FileInner::Sim(f))),
        }
    }

    /// Opens a file for [`File::append`]. If it does not exist, creates it for its owner alone
    /// (mode 0600).
    pub fn open_append(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        match &self.0 {
            DiskInner::Real(d) => d.open_append(path).map(|f| File(FileInner::Real(f))),
            DiskInner::Sim(d) => d.open_append(path).map(|f| File(FileInner::Sim(f))),
        }
    }

    /// Opens a directory.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<OpenDir> {
        let path = path.as_ref();
        match &self.0 {
            DiskInner::Real(d) => d.open_dir(path).map(|f| OpenDir(OpenDirInner::Real(f))),
            DiskInner::Sim(d) => d.open_dir(path).map(|f| OpenDir(OpenDirInner::Sim(f))),
        }
    }

    /// Creates a directory and its parents. Succeeds if the directory exists.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.create_dir_all(path.as_ref()))
    }

    /// Removes a file.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.remove_file(path.as_ref()))
    }

    /// Removes a directory and its contents.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.remove_dir_all(path.as_ref()))
    }

    /// Moves a file or directory, replacing a file (or an empty directory) at `to`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.rename(from.as_ref(), to.as_ref()))
    }

    /// Creates a hard link; EEXIST if `to` exists.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.hard_link(from.as_ref(), to.as_ref()))
    }

    /// Returns all entries sorted by name, without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
        let mut entries = on_disk!(self, d => d.read_dir(path.as_ref()))?;
        entries.sort_unstable();
        Ok(entries)
    }

    /// Returns the attributes of a file or directory (stat(2)).
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        on_disk!(self, d => d.metadata(path.as_ref()))
    }

    /// Returns the space of the file system that contains `path`.
    pub fn statvfs(&self, path: impl AsRef<Path>) -> io::Result<StatFs> {
        on_disk!(self, d => d.statvfs(path.as_ref()))
    }

    /// Returns the device that contains `path` (`st_dev`). Two paths on one device share its space.
    pub fn device(&self, path: impl AsRef<Path>) -> io::Result<u64> {
        on_disk!(self, d => d.device(path.as_ref()))
    }

    /// Returns an id of the present mount of the file system that contains `path`. After an unmount
    /// and a mount the id is another one, also in the same boot: changes that were not synced may
    /// be lost.
    ///
    /// ext4, XFS and F2FS have the same id in all mount namespaces. Another file system has a
    /// different one in each namespace and at each bind mount. A kernel before 6.8 may give its id
    /// once more after an unmount, and one before 5.8 has none.
    pub fn mount_id(&self, path: impl AsRef<Path>) -> io::Result<u64> {
        on_disk!(self, d => d.mount_id(path.as_ref()))
    }

    /// Returns the whole content of a file. For Sheen's own small files.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        on_disk!(self, d => d.read(path.as_ref()))
    }

    /// Replaces the content of a file. After a crash the file has either the old or the new
    /// content; after the return the new content is durable. Uses the temporary file `.NAME.tmp` in
    /// the same directory. Each path may have only one writer at a time.
    pub fn write_atomic(&self, path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        on_disk!(self, d => d.write_atomic(path.as_ref(), content))
    }

    /// Waits until the directory's entries are durable.
    pub async fn sync_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.sync_dir(path.as_ref()).await)
    }

    /// Waits until all earlier changes in the file system of `path` are durable (syncfs).
    pub async fn sync_fs(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.sync_fs(path.as_ref()).await)
    }

    /// Locks the file at `path` against other processes and against other calls in this one.
    /// Creates the file if it does not exist. [`io::ErrorKind::WouldBlock`] if the lock is held.
    pub fn try_lock(&self, path: impl AsRef<Path>) -> io::Result<LockGuard> {
        match &self.0 {
            DiskInner::Real(d) => d.try_lock(path.as_ref()).map(|l| LockGuard(LockInner::Real(l))),
            DiskInner::Sim(d) => d.try_lock(path.as_ref()).map(|l| LockGuard(LockInner::Sim(l))),
        }
    }
}

macro_rules! on_dir {
    ($self:ident, $d:ident => $call:expr) => {
        match &$self.0 {
            OpenDirInner::Real($d) => $call,
            OpenDirInner::Sim($d) => $call,
        }
    };
}

#[allow(clippy::missing_errors_doc, reason = "said once, at the type")]
impl OpenDir {
    /// Returns the space of the directory's file system (fstatvfs).
    pub fn statvfs(&self) -> io::Result<StatFs> {
        on_dir!(self, d => d.statvfs())
    }

    /// Waits until all earlier changes in the directory's file system are durable (syncfs).
    pub async fn sync_fs(&self) -> io::Result<()> {
        on_dir!(self, d => d.sync_fs().await)
    }

    /// Whether the directory was removed, that is, no name refers to it any more.
    pub fn is_removed(&self) -> bool {
        on_dir!(self, d => d.is_removed())
    }
}

/// An open file. Clones refer to the same open file. Offsets and lengths are in bytes.
///
/// All calls fail with the errno of the system call that they name.
#[derive(Clone)]
pub struct File(pub(crate) FileInner);

#[derive(Clone)]
pub(crate) enum FileInner {
    Real(real::disk::File),
    Sim(sim::File),
}

macro_rules! on_file {
    ($self:ident, $f:ident => $call:expr) => {
        match &$self.0 {
            FileInner::Real($f) => $call,
            FileInner::Sim($f) => $call,
        }
    };
}

#[allow(clippy::missing_errors_doc, reason = "said once, at the type")]
#[allow(clippy::len_without_is_empty, reason = "a file's length is a system call, not a container's property")]
impl File {
    /// Reads until `buf` is full or the file ends. Returns the number of bytes read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    /// Reads into the buffers in their order until they are full or the file ends. Returns the
    /// number of bytes read. Modifies the list of buffers.
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        on_file!(self, f => f.read_vectored_at(offset, bufs))
    }

    /// Returns the host's file descriptor, to pass the file's pages on within the kernel. A
    /// simulated file has none.
    pub fn host_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            FileInner::Real(f) => Some(f.fd().as_fd()),
            FileInner::Sim(_) => None,
        }
    }

    /// Writes all of `buf`.
    pub fn write_all_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        on_file!(self, f => f.write_all_at(offset, buf))
    }

    /// Writes all buffers in their order.
    pub fn write_all_vectored_at(&self, offset: u64, bufs: &[Bytes]) -> io::Result<()> {
        on_file!(self, f => f.write_all_vectored_at(offset, bufs))
    }

    /// Writes all of `buf` at the file's present end. Only for a file of [`Disk::open_append`].
    /// After an error a part of it may be written.
    pub fn append(&self, buf: &[u8]) -> io::Result<()> {
        on_file!(self, f => f.append(buf))
    }

    /// Truncates or extends the file. Added bytes read as zeros and take no space.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        on_file!(self, f => f.set_len(len))
    }

    /// Calls fallocate(2). If the file system cannot zero a range (tmpfs), punches a hole and
    /// reserves the space again.
    pub fn allocate(&self, mode: Allocate, offset: u64, len: u64) -> io::Result<()> {
        on_file!(self, f => f.allocate(mode, offset, len))
    }

    /// Returns the next data or hole at or after `offset`. The end of the file counts as a hole.
    /// Returns `None` if there is none; for a hole this means that `offset` is at or past the end.
    pub fn seek(&self, what: Seek, offset: u64) -> io::Result<Option<u64>> {
        on_file!(self, f => f.seek(what, offset))
    }

    /// Returns the attributes of the file (fstat(2)).
    pub fn metadata(&self) -> io::Result<Metadata> {
        on_file!(self, f => f.metadata())
    }

    /// Sets the modification time with full nanoseconds. The time that the kernel sets itself lags
    /// by up to a tick. [`File::sync_data`] need not make the time durable.
    pub fn set_mtime(&self, mtime: Time) -> io::Result<()> {
        on_file!(self, f => f.set_mtime(mtime))
    }

    /// Returns an extended attribute (fgetxattr(2)). `None`: the file has none of this name, or one
    /// of more than [`ATTR_BYTES_MAX`](crate::ATTR_BYTES_MAX) bytes, or the file system supports
    /// none.
    pub fn attr(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        on_file!(self, f => f.attr(name))
    }

    /// Sets an extended attribute (fsetxattr(2)). EOPNOTSUPP: the file system supports none.
    /// [`File::sync_data`] need not make it durable.
    pub fn set_attr(&self, name: &str, value: &[u8]) -> io::Result<()> {
        on_file!(self, f => f.set_attr(name, value))
    }

    /// Removes an extended attribute, if there is one (fremovexattr(2)).
    pub fn remove_attr(&self, name: &str) -> io::Result<()> {
        on_file!(self, f => f.remove_attr(name))
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len)
    }

    /// Waits until content and size are durable (fdatasync).
    pub async fn sync_data(&self) -> io::Result<()> {
        on_file!(self, f => f.sync_data().await)
    }

    /// As [`File::sync_data`], but on the calling thread. For storage engines that have a dedicated
    /// thread for syncing.
    pub fn sync_data_blocking(&self) -> io::Result<()> {
        on_file!(self, f => f.sync_data_blocking())
    }

    /// Drops the file's pages that are on the disk from the page cache.
    pub fn drop_cached(&self) -> io::Result<()> {
        match &self.0 {
            FileInner::Real(f) => f.drop_cached(),
            FileInner::Sim(_) => Ok(()), // has no page cache
        }
    }
}
