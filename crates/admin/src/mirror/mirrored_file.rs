//! A file with mirrors, and the requests to the MDT that change them. The same operations serve
//! tools, which have a path, and the C library, which has a descriptor.

use std::{fs::File, os::fd::BorrowedFd, path::Path};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Result, Time,
    mirror::{MirrorChange, XATTR},
};

use crate::{
    attributes::{self, At},
    file_system::FileSystem,
    os_errno,
};

/// A file with mirrors.
pub trait MirroredFile {
    /// Returns the layout. ENODATA: the file has none.
    fn layout(&self) -> Result<Layout>;
    /// Sends a change of mirrors to the MDT. ENOTTY: the file is not on a Sheen mount.
    fn change(&self, change: &MirrorChange) -> Result<()>;
    /// Returns the modification time.
    fn mtime(&self) -> Result<Time>;
}

/// A file by its path.
#[derive(Clone, Copy)]
pub struct NamedFile<'a> {
    /// The file system of the path.
    pub fs: &'a dyn FileSystem,
    /// The path.
    pub path: &'a Path,
}

impl std::fmt::Debug for NamedFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NamedFile").field(&self.path).finish()
    }
}

impl NamedFile<'_> {
    /// Opens one mirror.
    ///
    /// # Errors
    /// As [`FileSystem::mirror`].
    pub fn mirror(&self, id: u16, write: bool) -> Result<File> {
        self.fs.mirror(self.path, id, write)
    }

    /// Returns the size in bytes.
    ///
    /// # Errors
    /// As [`FileSystem::size`].
    pub fn size(&self) -> Result<u64> {
        self.fs.size(self.path)
    }
}

impl MirroredFile for NamedFile<'_> {
    fn layout(&self) -> Result<Layout> {
        self.fs.layout(self.path)
    }

    fn change(&self, change: &MirrorChange) -> Result<()> {
        let path = self.fs.resolve(self.path)?;
        self.fs.fid(&path)?;
        self.fs.set(&path, XATTR, &change.encode()?, false)
    }

    fn mtime(&self) -> Result<Time> {
        self.fs.mtime(self.path)
    }
}

impl MirroredFile for BorrowedFd<'_> {
    fn layout(&self) -> Result<Layout> {
        let value = attributes::layout(At::File(*self))?.ok_or(Errno::ENODATA)?;
        Ok(Layout::decode(&value)?)
    }

    fn change(&self, change: &MirrorChange) -> Result<()> {
        attributes::set(At::File(*self), XATTR, &change.encode()?, false)
    }

    fn mtime(&self) -> Result<Time> {
        let stat = rustix::fs::fstat(self).map_err(os_errno)?;
        // Always less than a second.
        Ok(Time { sec: stat.st_mtime, nsec: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) })
    }
}
