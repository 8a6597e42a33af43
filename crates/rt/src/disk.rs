//! Files and directories of this host.
//!
//! Reading and writing are plain calls on the calling thread: they end in the page cache, where a
//! task switch would cost more than the call. What has to wait for the device, durability, is
//! asynchronous.
//!
//! What survives a crash of the host: of a file, all that was written before a [`File::sync_data`]
//! that returned; of a directory, all entries made, renamed or removed in it before a
//! [`Disk::sync_dir`] that returned. Anything else may survive in part.

use std::{
    ffi::OsString,
    io::{self, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use bytes::Bytes;
use sheen_wire::{
    FileKind, StatFs, Time,
    ost::{Allocate, Seek},
};

use crate::{real, sim};

/// How a file is opened. All false by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Create it if missing.
    pub create: bool,
    /// Create it; EEXIST if it is there.
    pub create_new: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Past the page cache; offsets, lengths and memory must then be aligned to the device's
    /// blocks.
    pub direct: bool,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub const READ: OpenOptions =
        OpenOptions { read: true, write: false, create: false, create_new: false, truncate: false, direct: false };
    /// An existing file, for reading and writing.
    pub const READ_WRITE: OpenOptions = OpenOptions { write: true, ..OpenOptions::READ };
    /// A file that is created if missing, for reading and writing.
    pub const CREATE: OpenOptions = OpenOptions { create: true, ..OpenOptions::READ_WRITE };
    /// A file that must not exist yet, for reading and writing.
    pub const CREATE_NEW: OpenOptions = OpenOptions { create_new: true, ..OpenOptions::READ_WRITE };
}

/// What `stat` says of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Size in bytes.
    pub len: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks512: u64,
    /// Last change of content.
    pub mtime: Time,
    /// File type.
    pub kind: FileKind,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirEntry {
    /// Name.
    pub name: OsString,
    /// Its type.
    pub kind: DirEntryKind,
}

/// File types as far as a host's own directories have them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DirEntryKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Anything else.
    Other,
}

/// The host's disk. A handle: clones are the same disk. Paths are relative to the process's
/// directory, or absolute; in a simulation both start at the host's root.
///
/// All calls fail with the errno of the system call that they name.
#[derive(Clone)]
pub struct Disk(pub(crate) DiskInner);

#[derive(Clone)]
pub(crate) enum DiskInner {
    Real(real::disk::Disk),
    Sim(sim::Disk),
}

/// An open directory. Calls reach the directory itself, also after another one was mounted over its
/// path, or renamed to it. A handle: clones are the same directory.
///
/// All calls fail with the errno of the system call that they name.
#[derive(Clone)]
pub struct OpenDir(pub(crate) OpenDirInner);

#[derive(Clone)]
pub(crate) enum OpenDirInner {
    Real(real::disk::OpenDir),
    Sim(sim::OpenDir),
}

/// An advisory lock on a file, given back on drop (or when the process ends, however it ends).
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

    /// Opens a directory.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<OpenDir> {
        let path = path.as_ref();
        match &self.0 {
            DiskInner::Real(d) => d.open_dir(path).map(|f| OpenDir(OpenDirInner::Real(f))),
            DiskInner::Sim(d) => d.open_dir(path).map(|f| OpenDir(OpenDirInner::Sim(f))),
        }
    }

    /// Creates a directory and those above it; fine if it exists.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.create_dir_all(path.as_ref()))
    }

    /// Removes a file.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.remove_file(path.as_ref()))
    }

    /// Removes a directory and all in it.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.remove_dir_all(path.as_ref()))
    }

    /// Moves a file or directory, replacing a file (or an empty directory) at `to`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.rename(from.as_ref(), to.as_ref()))
    }

    /// Gives a file a second name; EEXIST if that is taken.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.hard_link(from.as_ref(), to.as_ref()))
    }

    /// All entries, sorted by name, without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
        let mut entries = on_disk!(self, d => d.read_dir(path.as_ref()))?;
        entries.sort_unstable();
        Ok(entries)
    }

    /// stat(2).
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        on_disk!(self, d => d.metadata(path.as_ref()))
    }

    /// Space of the file system on which `path` lies.
    pub fn statvfs(&self, path: impl AsRef<Path>) -> io::Result<StatFs> {
        on_disk!(self, d => d.statvfs(path.as_ref()))
    }

    /// Which device `path` lies on (`st_dev`): two paths on one device share their space.
    pub fn device(&self, path: impl AsRef<Path>) -> io::Result<u64> {
        on_disk!(self, d => d.device(path.as_ref()))
    }

    /// A file's whole content; for small files of our own.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        on_disk!(self, d => d.read(path.as_ref()))
    }

    /// Replaces a file's content so that after a crash it is either the old or the new one; durable
    /// on return. It goes by way of `.NAME.tmp` beside it. One writer of a path at a time.
    pub fn write_atomic(&self, path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        on_disk!(self, d => d.write_atomic(path.as_ref(), content))
    }

    /// Answers when the directory's entries are durable.
    pub async fn sync_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.sync_dir(path.as_ref()).await)
    }

    /// Answers when all that was done on the file system of `path` is durable (syncfs).
    pub async fn sync_fs(&self, path: impl AsRef<Path>) -> io::Result<()> {
        on_disk!(self, d => d.sync_fs(path.as_ref()).await)
    }

    /// Locks the file at `path`, created if missing, against other processes (and against other
    /// calls in this one). [`io::ErrorKind::WouldBlock`] if somebody holds it.
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
    /// Space of the file system on which it lies (fstatvfs).
    pub fn statvfs(&self) -> io::Result<StatFs> {
        on_dir!(self, d => d.statvfs())
    }

    /// Answers when all that was done on its file system is durable (syncfs).
    pub async fn sync_fs(&self) -> io::Result<()> {
        on_dir!(self, d => d.sync_fs().await)
    }

    /// Whether it was removed: no name leads to it any more.
    pub fn is_removed(&self) -> bool {
        on_dir!(self, d => d.is_removed())
    }
}

/// An open file. A handle: clones are the same open file. Offsets and lengths are bytes.
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
    /// Reads until `buf` is full or the file ends; answers the bytes read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    /// Reads into the buffers, one after another, until they are full or the file ends; answers the
    /// bytes read. The list is used up in doing so.
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        on_file!(self, f => f.read_vectored_at(offset, bufs))
    }

    /// The host's descriptor of it, to hand its pages on within the kernel; a simulated file has
    /// none.
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

    /// Writes all buffers, one after another.
    pub fn write_all_vectored_at(&self, offset: u64, bufs: &[Bytes]) -> io::Result<()> {
        on_file!(self, f => f.write_all_vectored_at(offset, bufs))
    }

    /// Cuts or extends it; what is new reads as zeros and takes no space.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        on_file!(self, f => f.set_len(len))
    }

    /// fallocate(2). Zeroing is made of punching and reserving where the file system does not know
    /// it (tmpfs).
    pub fn allocate(&self, mode: Allocate, offset: u64, len: u64) -> io::Result<()> {
        on_file!(self, f => f.allocate(mode, offset, len))
    }

    /// The next data or hole at or after `offset`; the end of the file counts as a hole. `None`
    /// where there is none, which for a hole means that `offset` is at or past the end.
    pub fn seek(&self, what: Seek, offset: u64) -> io::Result<Option<u64>> {
        on_file!(self, f => f.seek(what, offset))
    }

    /// fstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        on_file!(self, f => f.metadata())
    }

    /// Sets the time of the last change of content, with all its nanoseconds; the kernel's own lags
    /// by up to a tick. [`File::sync_data`] need not make it durable.
    pub fn set_mtime(&self, mtime: Time) -> io::Result<()> {
        on_file!(self, f => f.set_mtime(mtime))
    }

    /// Size.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len)
    }

    /// Answers when content and size are durable (fdatasync).
    pub async fn sync_data(&self) -> io::Result<()> {
        on_file!(self, f => f.sync_data().await)
    }

    /// The same on the calling thread; for storage engines that have a thread of their own for
    /// this.
    pub fn sync_data_blocking(&self) -> io::Result<()> {
        on_file!(self, f => f.sync_data_blocking())
    }
}
