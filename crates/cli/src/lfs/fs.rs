//! How lfs reaches a file system: by system calls on paths, nothing else. A trait, so that tests
//! bring their own.

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
/// Largest value of an extended attribute, and so the largest answer of a mount.
const VALUE_BYTES_MAX: usize = 65536;
/// An access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// How long a mount may take to answer before the others are shown without it. It answers at once
/// unless its process is stopped, hangs or waits for a server.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Mounts that are asked at once; with more than these they are asked in turns.
const ASKED_AT_ONCE_MAX: usize = 64;

/// A mount of Sheen on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// The file system's name.
    pub fsname: String,
}

/// What lfs needs of the system.
pub trait FileSystem {
    /// An extended attribute of a path, of a symbolic link itself.
    fn get(&self, path: &Path, name: &str) -> Result<Vec<u8>>;
    /// Sets one, following links. `create`: EEXIST if there is one.
    fn set(&self, path: &Path, name: &str, value: &[u8], create: bool) -> Result<()>;
    /// Removes one, following links.
    fn remove(&self, path: &Path, name: &str) -> Result<()>;
    /// What a path is, after following links if `follow`.
    fn kind(&self, path: &Path, follow: bool) -> Result<FileKind>;
    /// Where a symbolic link leads.
    fn read_link(&self, path: &Path) -> Result<PathBuf>;
    /// The path without links, dots and doubled slashes.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;
    /// Makes an empty regular file; EEXIST if there is something.
    fn make_file(&self, path: &Path, mode: u32) -> Result<()>;
    /// Names in a directory, in its own order.
    fn list(&self, path: &Path) -> Result<Vec<OsString>>;
    /// Gives advice on a file ([`sheen_wire::ioctl`]); the answer has the result filled in.
    fn advise(&self, path: &Path, advice: &Ladvise) -> Result<Ladvise>;
    /// Does `work` while a file is locked for the group `gid`; `nowait`: EAGAIN where others are in
    /// the way.
    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()>;
    /// Opens one mirror of a file, past all caches.
    fn mirror(&self, path: &Path, id: u16, write: bool) -> Result<fs::File>;
    /// Bytes of a file.
    fn size(&self, path: &Path) -> Result<u64>;
    /// Blocks of 512 bytes that a file takes.
    fn blocks(&self, path: &Path) -> Result<u64>;
    /// A file's data version; `flush`: as [`sheen_wire::ioctl::DataVersion::flags`].
    fn data_version(&self, path: &Path, flush: u32) -> Result<u64>;
    /// When a file was last changed.
    fn mtime(&self, path: &Path) -> Result<Time>;
    /// Gives a file that this user has just made another one's permissions, group and, if root does
    /// so, owner. EEXIST: it is another by now.
    fn adopt(&self, path: &Path, from: &Path) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Moves a file to other objects; tells how many bytes of how many are copied.
    fn migrate(&self, path: &Path, how: &How, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Failure>;
    /// Two files exchange their layouts.
    fn swap_layouts(&self, paths: [&Path; 2]) -> Result<(), NotSwapped>;
    /// Where Sheen is mounted. No mount is asked: one whose process is stopped would hang.
    fn mounts(&self) -> Vec<Mount>;
    /// Whether the mounts at these points answer a request for an attribute within [`ANSWER_WAIT`],
    /// be it with an error.
    fn answers(&self, points: &[PathBuf], name: &'static str) -> Vec<bool>;
}

/// The system itself.
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
        // What a file is never changes: as the kernel knows it will do, and no OST is asked for the
        // size.
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
        // SAFETY: the number says that its argument is read and written and how large it is, which
        // is the size of `Ladvise`. Other file systems that have the number take Lustre's.
        let call = unsafe { Updater::<{ sheen_wire::ioctl::LADVISE }, Ladvise>::new(&mut advice) };
        // SAFETY: as above.
        unsafe { ioctl(&file, call) }.map_err(errno)?;
        Ok(advice)
    }

    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()> {
        let flags = if nowait { OFlags::NONBLOCK } else { OFlags::empty() };
        let file = rustix::fs::open(path, flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        // SAFETY: the number says that its argument is read and how large it is, which is the size
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
        // SAFETY: the number says that its argument is read and how large it is, which is the size
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
        // Always below a second's.
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
        // With an access control list the group's bits say something else.
        let list = self.get(from, ACCESS_LIST).ok().filter(|_| has_group);
        match list {
            Some(list) => rustix::fs::fsetxattr(&file, ACCESS_LIST, &list, XattrFlags::empty()),
            None => {
                // What is for one group is not for another.
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

/// Whether `ask` returns for each path within `limit`; all are asked at once.
///
/// The thread of one that does not return is left behind. A request to a mount cannot be taken
/// back; if the mount has not read it, the kernel drops it when this program ends.
fn answers_within(limit: Duration, paths: &[PathBuf], ask: impl Fn(&Path) + Copy + Send + 'static) -> Vec<bool> {
    let (tell, hear) = mpsc::channel();
    let mut answers = vec![false; paths.len()];
    for (i, path) in paths.iter().cloned().enumerate() {
        let tell = tell.clone();
        let ask_one = move || {
            ask(&path);
            // Too late for anybody to hear is fine.
            let _ = tell.send(i);
        };
        // Without a thread the path counts as answering, so that it is asked without a limit.
        answers[i] = thread::Builder::new().spawn(ask_one).is_err();
    }
    drop(tell);
    let until = Instant::now() + limit;
    while let Ok(i) = hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
        answers[i] = true;
    }
    answers
}

/// The mounts of Sheen among the lines of `/proc/mounts`.
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

/// `sheen` of `10.0.2.15@tcp:/sheen`; empty where the source is none of Sheen's.
fn fsname_of(source: &[u8]) -> String {
    let source = String::from_utf8_lossy(source);
    let path = source.split_once(":/").map_or("", |(_, path)| path);
    path.split('/').next().unwrap_or_default().to_owned()
}

/// Undoes the kernel's `\040` for a space and the like.
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

/// The FID of what lies at a path of a Sheen mount. ENOTTY for a path elsewhere, as Lustre's ioctls
/// say.
pub fn fid_of(fs: &dyn FileSystem, path: &Path) -> Result<Fid> {
    let text = fs.get(path, control::FID).map_err(not_sheen)?;
    std::str::from_utf8(&text).ok().and_then(|t| t.trim_end().parse().ok()).ok_or(Errno::ENOTTY)
}

/// What other file systems say of an attribute that they do not have becomes ENOTTY.
pub fn not_sheen(e: Errno) -> Errno {
    match e {
        Errno::EOPNOTSUPP | Errno::ENODATA | Errno::EINVAL | Errno::ENOSYS => Errno::ENOTTY,
        e => e,
    }
}

/// What `ask` tells with these flags of statx(2), and with those of stat(2) if it tells no type of
/// file.
///
/// With STATX_DONT_SYNC the kernel tells what it has. Of a file that it is just learning of it may
/// have no mode: where attributes are invalidated between the moment at which the inode is in its
/// tables and that at which it has the attributes of the answer, it drops these. stat(2) then asks
/// the mount.
pub fn with_type<T>(flags: AtFlags, ask: impl Fn(AtFlags) -> Result<T>, mode: impl Fn(&T) -> u32) -> Result<T> {
    let told = ask(flags)?;
    let has_type = FileKind::from_mode(mode(&told)).is_some();
    if has_type { Ok(told) } else { ask(flags - AtFlags::STATX_DONT_SYNC) }
}

/// The directory that holds `path`.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// `directory/name`, with a single slash between.
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
    fn finds_mounts() {
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
    fn a_file_whose_type_the_kernel_does_not_have_is_asked_for_again() {
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
    fn a_path_that_does_not_answer_keeps_nobody_waiting() {
        let paths = ["/fine", "/stopped", "/broken"].map(PathBuf::from);
        let ask = |path: &Path| {
            while path.ends_with("stopped") {
                thread::park();
            }
        };
        assert_eq!(answers_within(Duration::from_millis(100), &paths[1..2], ask), [false]);
        // Those that answer are all heard, so the limit is only reached for the one that does not.
        assert_eq!(answers_within(Duration::from_secs(1), &paths, ask), [true, false, true]);
        assert_eq!(answers_within(Duration::from_secs(60), &paths[..1], ask), [true]);
    }

    #[test]
    fn paths() {
        assert_eq!(parent_of(Path::new("f")), Path::new("."));
        assert_eq!(parent_of(Path::new("/f")), Path::new("/"));
        assert_eq!(join(Path::new("."), "f".as_ref()).as_os_str(), "./f");
        assert_eq!(join(Path::new("d/"), "f".as_ref()).as_os_str(), "d/f");
    }
}
