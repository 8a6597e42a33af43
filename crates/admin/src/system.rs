//! System calls on the paths of a host: the real [`FileSystem`].

use std::{
    ffi::OsString,
    fs,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::fs::{Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, StatxFlags, Uid, XattrFlags};
use sheen_wire::{Errno, Fid, FileKind, Project, Result, Time, ioctl::Ladvise};

use crate::{
    Failure,
    attributes::{self, At},
    file_system::FileSystem,
    migrate::{self, MigrateOptions},
    mounts::{self, Mount},
    open_file, os_errno,
    progress::Progress,
    project,
    statx::with_type,
    swap,
};

/// Extended attribute that holds the POSIX access ACL.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Internal command of `lfs`: asks a mount for an attribute. Its operands are the attribute and the
/// mount point. [`FileSystem::answers`] of [`System`] starts it, and so works only in the program
/// `sheen`.
pub const PROBE: &str = "--probe";

/// The real system.
#[derive(Debug)]
pub struct System;

impl FileSystem for System {
    fn get(&self, path: &Path, name: &str) -> Result<Vec<u8>> {
        attributes::get(At::Name(path), name)
    }

    fn set(&self, path: &Path, name: &str, value: &[u8], create: bool) -> Result<()> {
        attributes::set(At::Path(path), name, value, create)
    }

    fn remove(&self, path: &Path, name: &str) -> Result<()> {
        rustix::fs::removexattr(path, name).map_err(os_errno)
    }

    fn kind(&self, path: &Path, follow: bool) -> Result<FileKind> {
        let link = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let ask = |flags: AtFlags| {
            let stat = rustix::fs::statx(CWD, path, link | flags, StatxFlags::TYPE);
            stat.map(|stat| u32::from(stat.stx_mode)).map_err(os_errno)
        };
        // The type of a file never changes, so the kernel's cached attributes suffice. This also
        // avoids asking the OSTs for the size.
        let mode = with_type(AtFlags::STATX_DONT_SYNC, ask, |mode| *mode)?;
        FileKind::from_mode(mode).ok_or(Errno::EINVAL)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        fs::read_link(path).map_err(os_errno)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        fs::canonicalize(path).map_err(os_errno)
    }

    fn make_file(&self, path: &Path, mode: u32) -> Result<()> {
        rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(mode), 0).map_err(os_errno)
    }

    fn may_read(&self, path: &Path) -> Result<()> {
        rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).map_err(os_errno)
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        let entries = fs::read_dir(path).map_err(os_errno)?;
        entries.map(|entry| entry.map(|e| e.file_name()).map_err(os_errno)).collect()
    }

    fn advise(&self, path: &Path, advice: &Ladvise) -> Result<Ladvise> {
        let writes = advice.advice == sheen_wire::ioctl::LOCKAHEAD && advice.mode == sheen_wire::ioctl::MODE_WRITE;
        let file = fs::OpenOptions::new().read(true).write(writes).open(path).map_err(os_errno)?;
        open_file::advise(&file, advice)
    }

    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()> {
        let flags = if nowait { OFlags::NONBLOCK } else { OFlags::empty() };
        let file = rustix::fs::open(path, flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(os_errno)?;
        open_file::group_lock(&file, gid)?;
        work();
        Ok(())
    }

    fn mirror(&self, path: &Path, id: u16, write: bool) -> Result<fs::File> {
        let mode = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = mode | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(os_errno)?;
        open_file::use_mirror(&file, id)?;
        Ok(file.into())
    }

    fn size(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|m| m.len()).map_err(os_errno)
    }

    fn blocks(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|m| m.blocks()).map_err(os_errno)
    }

    fn data_version(&self, path: &Path, flush: u32) -> Result<u64> {
        crate::data_version::data_version(path, flush)
    }

    fn mtime(&self, path: &Path) -> Result<Time> {
        let metadata = fs::metadata(path).map_err(os_errno)?;
        // Always less than a second.
        Ok(Time { sec: metadata.mtime(), nsec: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) })
    }

    fn adopt(&self, path: &Path, from: &Path) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(os_errno)?;
        let (made, like) = (rustix::fs::fstat(&file).map_err(os_errno)?, rustix::fs::stat(from).map_err(os_errno)?);
        let me = rustix::process::geteuid();
        if made.st_uid != me.as_raw() || made.st_nlink != 1 || !FileType::from_raw_mode(made.st_mode).is_file() {
            return Err(Errno::EEXIST);
        }
        let owner = me.is_root().then(|| Uid::from_raw(like.st_uid));
        let has_group = rustix::fs::fchown(&file, owner, Some(Gid::from_raw(like.st_gid))).is_ok();
        // With an ACL the group bits of the mode are the ACL's mask, so copy the ACL.
        let list = self.get(from, ACCESS_LIST).ok().filter(|_| has_group);
        match list {
            Some(list) => rustix::fs::fsetxattr(&file, ACCESS_LIST, &list, XattrFlags::empty()),
            None => {
                // If the group cannot be set, its permissions must not apply to another group.
                let all = if has_group { 0o777 } else { 0o700 };
                rustix::fs::fchmod(&file, Mode::from_raw_mode(like.st_mode & all))
            }
        }
        .map_err(os_errno)
    }

    fn project(&self, path: &Path) -> Result<Project> {
        project::get(path)
    }

    fn set_project(&self, path: &Path, project: Project) -> Result<()> {
        project::set(path, project)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(os_errno)
    }

    fn nlink(&self, path: &Path) -> Result<u32> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::NLINK).map_err(os_errno)?;
        Ok(stat.stx_nlink)
    }

    /// The directory is resolved below the mount point, and opened once. So a user who replaces one
    /// by a symbolic link meanwhile cannot redirect the removal.
    fn unlink_fid(&self, mount: &Path, path: &Path, fid: Fid) -> Result<()> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::EISDIR) };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(mount, flags, Mode::empty()).map_err(os_errno)?;
        let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = rustix::fs::openat2(&root, dir, flags, Mode::empty(), below).map_err(os_errno)?;
        let opened = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        if self.fid(&opened.join(name))? != fid {
            return Err(Errno::ESTALE);
        }
        rustix::fs::unlinkat(&dir, name, AtFlags::empty()).map_err(os_errno)
    }

    fn migrate(
        &self,
        path: &Path,
        options: &MigrateOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        migrate::migrate(path, options, progress)
    }

    fn swap_layouts(&self, paths: [&Path; 2]) -> Result<(), Failure> {
        swap::swap_layouts(paths)
    }

    fn mounts(&self) -> Vec<Mount> {
        mounts::mount_table()
    }

    fn answers(&self, points: &[PathBuf], name: &'static str, limit: Duration) -> Vec<bool> {
        mounts::answering(points, limit, |point| {
            let mut command = Command::new("/proc/self/exe");
            command.args(["lfs", PROBE, name]).arg(point);
            command
        })
    }
}
