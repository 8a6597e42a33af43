//! Access to files by path: system calls, behind a trait that tests implement.

use std::{
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, FileKind, Project, Result, Time, control,
    ioctl::Ladvise,
    quota::{self, Answer, Change, Query},
};

use crate::{
    Failure,
    attributes::{LOV, not_sheen, parse},
    migrate::MigrateOptions,
    mounts::Mount,
    progress::Progress,
};

/// The system calls that the operations on files need. A trait, so that tests need no mount.
pub trait FileSystem {
    /// Returns an extended attribute of a path. Does not follow a symbolic link.
    fn get(&self, path: &Path, name: &str) -> Result<Vec<u8>>;
    /// Sets an extended attribute, following symbolic links. `create`: EEXIST if it is already set.
    fn set(&self, path: &Path, name: &str, value: &[u8], create: bool) -> Result<()>;
    /// Removes an extended attribute, following symbolic links.
    fn remove(&self, path: &Path, name: &str) -> Result<()>;
    /// Returns the file type of a path. `follow`: follows symbolic links.
    fn kind(&self, path: &Path, follow: bool) -> Result<FileKind>;
    /// Returns the target of a symbolic link.
    fn read_link(&self, path: &Path) -> Result<PathBuf>;
    /// Returns the absolute path without symbolic links, dots and doubled slashes.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;
    /// Creates an empty regular file. EEXIST: the name exists.
    fn make_file(&self, path: &Path, mode: u32) -> Result<()>;
    /// Checks that the caller may read a directory, without opening it. EACCES: not permitted.
    fn may_read(&self, path: &Path) -> Result<()>;
    /// Returns the names in a directory, in the order in which the directory returns them.
    fn list(&self, path: &Path) -> Result<Vec<OsString>>;
    /// Gives advice on a file ([`sheen_wire::ioctl`]) and returns it with the result filled in.
    fn advise(&self, path: &Path, advice: &Ladvise) -> Result<Ladvise>;
    /// Runs `work` while the mount holds a group lock of group `gid` on the file. `nowait`: returns
    /// EAGAIN instead of waiting for conflicting locks.
    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()>;
    /// Opens one mirror of a file. Reads and writes bypass all caches.
    fn mirror(&self, path: &Path, id: u16, write: bool) -> Result<File>;
    /// Returns the size of a file in bytes.
    fn size(&self, path: &Path) -> Result<u64>;
    /// Returns the allocated blocks of a file, in units of 512 bytes.
    fn blocks(&self, path: &Path) -> Result<u64>;
    /// Returns a file's data version. `flush`: as [`sheen_wire::ioctl::DataVersion::flags`].
    fn data_version(&self, path: &Path, flush: u32) -> Result<u64>;
    /// Returns the modification time of a file.
    fn mtime(&self, path: &Path) -> Result<Time>;
    /// Gives `path`, a file that this user has just created, the permissions and the group of
    /// `from`. If root calls it, also the owner. EEXIST: `path` now names another file.
    fn adopt(&self, path: &Path, from: &Path) -> Result<()>;
    /// Returns the project of a file. Does not follow a symbolic link.
    fn project(&self, path: &Path) -> Result<Project>;
    /// Sets the project of a file. Does not follow a symbolic link.
    fn set_project(&self, path: &Path, project: Project) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Returns the number of names of a file from its mount, not from the kernel's cache. Does not
    /// follow a symbolic link.
    fn nlink(&self, path: &Path) -> Result<u32>;
    /// Removes a name of the file `fid`. `path`: relative to `mount`, without symbolic links.
    /// ESTALE: the name belongs to another file. ELOOP: the path has a symbolic link. EXDEV: the
    /// path leads to another mount. EISDIR: the file is a directory.
    fn unlink_fid(&self, mount: &Path, path: &Path, fid: Fid) -> Result<()>;
    /// Migrates a file to new objects, as [`crate::migrate::migrate`].
    fn migrate(&self, path: &Path, options: &MigrateOptions, progress: &mut dyn FnMut(Progress))
    -> Result<(), Failure>;
    /// Exchanges the layouts of two files, as [`crate::swap_layouts`].
    fn swap_layouts(&self, paths: [&Path; 2]) -> Result<(), Failure>;
    /// Lists the Sheen mounts of this host. Asks no mount, because a mount whose process is stopped
    /// would hang the caller.
    fn mounts(&self) -> Vec<Mount>;
    /// Returns for each mount point whether its mount answers a request for an attribute within
    /// `limit`. An error counts as an answer.
    fn answers(&self, points: &[PathBuf], name: &'static str, limit: Duration) -> Vec<bool>;

    /// Returns the FID of the file at a path. ENOTTY: the path is not on a Sheen mount.
    fn fid(&self, path: &Path) -> Result<Fid> {
        parse(&self.get(path, control::FID).map_err(not_sheen)?)
    }

    /// Returns the layout of a file, following symbolic links. ENODATA: the file has none.
    fn layout(&self, path: &Path) -> Result<Layout> {
        Ok(Layout::decode(&self.get(&self.resolve(path)?, LOV)?)?)
    }

    /// Asks the file system of a mount about quotas. EPERM: not permitted to the caller.
    fn quota(&self, mount: &Path, query: &Query) -> Result<Answer> {
        Answer::decode(&self.get(mount, &query.name()?)?).map_err(|_| Errno::EPROTO)
    }

    /// Changes quotas of the file system of a mount. EPERM: the caller is not the superuser.
    /// EOPNOTSUPP: only a subdirectory is mounted there. EINVAL: a soft limit above the hard one.
    fn set_quota(&self, mount: &Path, change: &Change) -> Result<()> {
        self.set(mount, quota::XATTR, &change.encode()?, false).map_err(|e| match e {
            // The kernel refuses those who may not write to the directory, and asks nobody.
            Errno::EACCES => Errno::EPERM,
            e => e,
        })
    }
}
