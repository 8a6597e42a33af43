//! File system access of `lfs`: system calls on paths, behind a trait that the tests implement.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, StatxFlags, Uid, XattrFlags},
    ioctl::{Setter, Updater, ioctl},
};
use sheen_wire::{Errno, Fid, FileKind, Result, Time, control, ioctl::Ladvise};

use super::{
    data_version,
    migrate::copy::{self, Failure, How},
    swap_layouts::{self, NotSwapped},
};

/// The type of Sheen's mounts in `/proc/mounts`.
const MOUNT_TYPE: &str = "fuse.sheen";
/// Largest value of an extended attribute in bytes, and so the largest answer of a mount.
const VALUE_BYTES_MAX: usize = 65536;
/// Extended attribute that holds the POSIX access ACL.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Timeout for the answer of a mount. After that the command goes on without the mount. A mount
/// answers at once, unless its process is stopped, hangs or waits for a server.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Mounts that are asked at the same time. More mounts are asked in groups of this size.
const ASKED_AT_ONCE_MAX: usize = 64;

/// A Sheen mount on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// The file system's name.
    pub fsname: String,
}

/// The system calls that `lfs` needs.
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
    /// Returns the names in a directory, in the order in which the directory returns them.
    fn list(&self, path: &Path) -> Result<Vec<OsString>>;
    /// Gives advice on a file ([`sheen_wire::ioctl`]) and returns it with the result filled in.
    fn advise(&self, path: &Path, advice: &Ladvise) -> Result<Ladvise>;
    /// Runs `work` while the mount holds a group lock of group `gid` on the file. `nowait`: returns
    /// EAGAIN instead of waiting for conflicting locks.
    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()>;
    /// Opens one mirror of a file. Reads and writes bypass all caches.
    fn mirror(&self, path: &Path, id: u16, write: bool) -> Result<fs::File>;
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
    /// Removes a file.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Migrates a file to new objects. Calls `progress` with the bytes copied and the total bytes.
    fn migrate(&self, path: &Path, how: &How, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Failure>;
    /// Exchanges the layouts of two files.
    fn swap_layouts(&self, paths: [&Path; 2]) -> Result<(), NotSwapped>;
    /// Lists the Sheen mounts of this host. Asks no mount, because a mount whose process is stopped
    /// would hang the caller.
    fn mounts(&self) -> Vec<Mount>;
    /// Returns for each mount point whether its mount answers a request for an attribute within
    /// [`ANSWER_WAIT`]. An error counts as an answer.
    fn answers(&self, points: &[PathBuf], name: &'static str) -> Vec<bool>;
}

/// The real system.
#[derive(Debug)]
pub struct System;

fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

fn io_errno(e: io::Error) -> Errno {
    Errno::from(e)
}

impl FileSystem for System {
    fn get(&self, path: &Path, name: &str) -> Result<Vec<u8>> {
        let mut value = vec![0; VALUE_BYTES_MAX];
        let len = rustix::fs::lgetxattr(path, &*control::open_name(name), &mut value[..]).map_err(errno)?;
        value.truncate(len);
        Ok(value)
    }

    fn set(&self, path: &Path, name: &str, value: &[u8], create: bool) -> Result<()> {
        let flags = if create { XattrFlags::CREATE } else { XattrFlags::empty() };
        rustix::fs::setxattr(path, name, value, flags).map_err(errno)
    }

    fn remove(&self, path: &Path, name: &str) -> Result<()> {
        rustix::fs::removexattr(path, name).map_err(errno)
    }

    fn kind(&self, path: &Path, follow: bool) -> Result<FileKind> {
        let link = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let ask = |flags: AtFlags| {
            let stat = rustix::fs::statx(CWD, path, link | flags, StatxFlags::TYPE);
            stat.map(|stat| u32::from(stat.stx_mode)).map_err(errno)
        };
        // The type of a file never changes, so the kernel's cached attributes suffice. This also
        // avoids asking the OSTs for the size.
        let mode = with_type(AtFlags::STATX_DONT_SYNC, ask, |mode| *mode)?;
        FileKind::from_mode(mode).ok_or(Errno::EINVAL)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        fs::read_link(path).map_err(io_errno)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        fs::canonicalize(path).map_err(io_errno)
    }

    fn make_file(&self, path: &Path, mode: u32) -> Result<()> {
        rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(mode), 0).map_err(errno)
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        let entries = fs::read_dir(path).map_err(io_errno)?;
        entries.map(|entry| entry.map(|e| e.file_name()).map_err(io_errno)).collect()
    }

    fn advise(&self, path: &Path, advice: &Ladvise) -> Result<Ladvise> {
        let writes = advice.advice == sheen_wire::ioctl::LOCKAHEAD && advice.mode == sheen_wire::ioctl::MODE_WRITE;
        let file = fs::OpenOptions::new().read(true).write(writes).open(path).map_err(io_errno)?;
        let mut advice = *advice;
        // SAFETY: the ioctl number encodes that the argument is read and written, and its size,
        // which is that of `Ladvise`. Another file system with this number expects Lustre's
        // structure.
        let call = unsafe { Updater::<{ sheen_wire::ioctl::LADVISE }, Ladvise>::new(&mut advice) };
        // SAFETY: as above.
        unsafe { ioctl(&file, call) }.map_err(errno)?;
        Ok(advice)
    }

    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()> {
        let flags = if nowait { OFlags::NONBLOCK } else { OFlags::empty() };
        let file = rustix::fs::open(path, flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that
        // of a `u64`.
        let call = unsafe { Setter::<{ sheen_wire::ioctl::GROUP_LOCK }, u64>::new(gid) };
        // SAFETY: as above.
        unsafe { ioctl(&file, call) }.map_err(errno)?;
        work();
        Ok(())
    }

    fn mirror(&self, path: &Path, id: u16, write: bool) -> Result<fs::File> {
        let mode = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = mode | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that
        // of a `u64`.
        let call = unsafe { Setter::<{ sheen_wire::ioctl::SET_MIRROR }, u64>::new(u64::from(id)) };
        // SAFETY: as above.
        unsafe { ioctl(&file, call) }.map_err(errno)?;
        Ok(file.into())
    }

    fn size(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|m| m.len()).map_err(io_errno)
    }

    fn blocks(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|m| m.blocks()).map_err(io_errno)
    }

    fn data_version(&self, path: &Path, flush: u32) -> Result<u64> {
        data_version::ask(path, flush)
    }

    fn mtime(&self, path: &Path) -> Result<Time> {
        let metadata = fs::metadata(path).map_err(io_errno)?;
        // Always less than a second.
        Ok(Time { sec: metadata.mtime(), nsec: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) })
    }

    fn adopt(&self, path: &Path, from: &Path) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        let (made, like) = (rustix::fs::fstat(&file).map_err(errno)?, rustix::fs::stat(from).map_err(errno)?);
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
        .map_err(errno)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(io_errno)
    }

    fn migrate(&self, path: &Path, how: &How, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Failure> {
        copy::run(path, how, progress)
    }

    fn swap_layouts(&self, paths: [&Path; 2]) -> Result<(), NotSwapped> {
        swap_layouts::swap(paths)
    }

    fn mounts(&self) -> Vec<Mount> {
        mounts_of(&fs::read("/proc/mounts").unwrap_or_default())
    }

    fn answers(&self, points: &[PathBuf], name: &'static str) -> Vec<bool> {
        let ask = move |point: &Path| drop(System.get(point, name));
        points.chunks(ASKED_AT_ONCE_MAX).flat_map(|points| answers_within(ANSWER_WAIT, points, ask)).collect()
    }
}

/// Returns for each path whether `ask` returns within `limit`. Asks all paths at the same time.
///
/// The thread of a path that does not answer is abandoned, because a request to a mount cannot be
/// cancelled. If the mount has not read the request, the kernel drops it when this program ends.
fn answers_within(limit: Duration, paths: &[PathBuf], ask: impl Fn(&Path) + Copy + Send + 'static) -> Vec<bool> {
    let (tell, hear) = mpsc::channel();
    let mut answers = vec![false; paths.len()];
    for (i, path) in paths.iter().cloned().enumerate() {
        let tell = tell.clone();
        let ask_one = move || {
            ask(&path);
            // After the limit there is no receiver any more, which is fine.
            let _ = tell.send(i);
        };
        // Without a thread the path counts as answering: the caller then asks it without a limit.
        answers[i] = thread::Builder::new().spawn(ask_one).is_err();
    }
    drop(tell);
    let until = Instant::now() + limit;
    while let Ok(i) = hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
        answers[i] = true;
    }
    answers
}

/// Returns the Sheen mounts among the lines of `/proc/mounts`.
fn mounts_of(table: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|b| *b == b' ');
        let (source, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let is_ours = kind == MOUNT_TYPE.as_bytes();
        is_ours
            .then(|| Mount { point: OsString::from_vec(unescape(point)).into(), fsname: fsname_of(&unescape(source)) })
    };
    table.split(|b| *b == b'\n').filter_map(mount).collect()
}

/// Returns `sheen` for `10.0.2.15@tcp:/sheen`, or an empty name if the source is not Sheen's.
fn fsname_of(source: &[u8]) -> String {
    let source = String::from_utf8_lossy(source);
    let path = source.split_once(":/").map_or("", |(_, path)| path);
    path.split('/').next().unwrap_or_default().to_owned()
}

/// Undoes the kernel's octal escapes, such as `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &rest[4..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Returns the FID of the file at a path of a Sheen mount. ENOTTY for other paths, like Lustre's
/// ioctls.
pub fn fid_of(fs: &dyn FileSystem, path: &Path) -> Result<Fid> {
    let text = fs.get(path, control::FID).map_err(not_sheen)?;
    std::str::from_utf8(&text).ok().and_then(|t| t.trim_end().parse().ok()).ok_or(Errno::ENOTTY)
}

/// Maps the errors that other file systems return for an unknown attribute to ENOTTY.
pub fn not_sheen(e: Errno) -> Errno {
    match e {
        Errno::EOPNOTSUPP | Errno::ENODATA | Errno::EINVAL | Errno::ENOSYS => Errno::ENOTTY,
        e => e,
    }
}

/// Calls `ask` with the given flags of statx(2). If the result has no file type, calls `ask` again
/// without STATX_DONT_SYNC, which is stat(2).
///
/// With STATX_DONT_SYNC the kernel returns its cached attributes. For an inode that it is just
/// adding, it may have no mode. The reason is an invalidation between two steps: the kernel has
/// hashed the inode, but has not stored the attributes of the reply yet. The kernel then drops
/// those attributes. stat(2) asks the mount.
pub fn with_type<T>(flags: AtFlags, ask: impl Fn(AtFlags) -> Result<T>, mode: impl Fn(&T) -> u32) -> Result<T> {
    let told = ask(flags)?;
    let has_type = FileKind::from_mode(mode(&told)).is_some();
    if has_type { Ok(told) } else { ask(flags - AtFlags::STATX_DONT_SYNC) }
}

/// Returns the directory that holds `path`.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns `directory/name`, with a single slash between them.
pub fn join(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = directory.as_os_str().as_bytes().to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_finds_sheen_mounts_in_mount_table() {
        let table = b"tmpfs /tmp tmpfs rw 0 0\n\
            10.0.2.15@tcp:/sheen /mnt/c1 fuse.sheen rw,nosuid 0 0\n\
            0@lo:/x /home/a\\040b/m\\134 fuse.sheen rw 0 0\n\
            x /mnt/other fuse.other rw 0 0\nbroken\n";
        let mount = |point: &str, fsname: &str| Mount { point: point.into(), fsname: fsname.into() };
        assert_eq!(mounts_of(table), [mount("/mnt/c1", "sheen"), mount("/home/a b/m\\", "x")]);
        assert_eq!(fsname_of(b"a@tcp:b:1@tcp:/one/sub"), "one");
        assert_eq!(fsname_of(b"other"), "");
    }

    #[test]
    fn with_type_asks_again_if_kernel_returns_no_type() {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let ask = |flags: AtFlags| Ok((flags, if flags.contains(AtFlags::STATX_DONT_SYNC) { 0 } else { 0o100644 }));
        let told = with_type(AtFlags::STATX_DONT_SYNC | nofollow, ask, |(_, mode)| *mode);
        assert_eq!(told, Ok((nofollow, 0o100644)));
        let known = |flags| Ok((flags, 0o040755));
        let told = with_type(AtFlags::STATX_DONT_SYNC, known, |(_, mode)| *mode);
        assert_eq!(told, Ok((AtFlags::STATX_DONT_SYNC, 0o040755)));
        let gone = |_| Err::<u32, _>(Errno::ENOENT);
        assert_eq!(with_type(AtFlags::STATX_DONT_SYNC, gone, |mode| *mode), Err(Errno::ENOENT));
    }

    #[test]
    fn answers_within_stops_waiting_for_silent_path() {
        let paths = ["/fine", "/stopped", "/broken"].map(PathBuf::from);
        let ask = |path: &Path| {
            while path.ends_with("stopped") {
                thread::park();
            }
        };
        assert_eq!(answers_within(Duration::from_millis(100), &paths[1..2], ask), [false]);
        // Every path that answers is counted, so only the silent path waits until the limit.
        assert_eq!(answers_within(Duration::from_secs(1), &paths, ask), [true, false, true]);
        assert_eq!(answers_within(Duration::from_secs(60), &paths[..1], ask), [true]);
    }

    #[test]
    fn parent_of_and_join_handle_bare_names_and_slashes() {
        assert_eq!(parent_of(Path::new("f")), Path::new("."));
        assert_eq!(parent_of(Path::new("/f")), Path::new("/"));
        assert_eq!(join(Path::new("."), "f".as_ref()).as_os_str(), "./f");
        assert_eq!(join(Path::new("d/"), "f".as_ref()).as_os_str(), "d/f");
    }
}
