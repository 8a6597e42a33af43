//! Mounting and unmounting: by mount(2) as root, otherwise through `fusermount3`, the setuid helper
//! of libfuse.

use std::{
    ffi::CString,
    io::{self, Read},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::{AtFlags, StatxFlags},
    io::{FdFlags, IoSliceMut, fcntl_setfd},
    mount::UnmountFlags,
    net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType},
};
use sheen_wire::Errno;

use crate::{device::Device, mount_flags::MountFlags, ring_switch::IoUringError};

/// Name of the helper, searched in PATH.
const HELPER: &str = "fusermount3";
/// Environment variable that gives the helper the socket for the device's descriptor.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";
/// Maximum bytes read of the helper's messages.
const HELPER_MESSAGE_BYTES_MAX: u64 = 4096;

/// Mount point and options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Mount point: an existing directory.
    pub mountpoint: PathBuf,
    /// Source shown in the mount table, such as `10.0.0.1@tcp:/sheen`.
    pub fsname: String,
    /// Suffix of the type shown, `fuse.<subtype>`: letters, digits, `_`, `-`.
    pub subtype: String,
    /// Whether other users may use the mount. For an ordinary user this needs `user_allow_other` in
    /// /etc/fuse.conf.
    pub allow_other: bool,
    /// Whether the kernel also checks permissions by mode, owner and group.
    pub default_permissions: bool,
    /// Flags that the kernel enforces.
    pub flags: MountFlags,
    /// Maximum size of one READ, in bytes. `None` stands for the session's `max_write`.
    pub max_read: Option<u32>,
}

impl MountOptions {
    /// Options with fusermount3's default flags, for the mounting user only.
    pub fn new(mountpoint: impl Into<PathBuf>, fsname: impl Into<String>) -> MountOptions {
        MountOptions {
            mountpoint: mountpoint.into(),
            fsname: fsname.into(),
            subtype: "sheen".into(),
            allow_other: false,
            default_permissions: false,
            flags: MountFlags::default(),
            max_read: None,
        }
    }
}

/// Why mounting failed, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// `/dev/fuse` cannot be opened.
    #[error(
        "cannot open /dev/fuse: {0}; load the kernel module (modprobe fuse), or pass the device to the container (--device /dev/fuse)"
    )]
    Device(#[source] io::Error),
    /// The mount point cannot be used.
    #[error("cannot mount on {path}: {source}{hint}")]
    Point {
        /// Mount point.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
        /// Advice, with leading punctuation, or empty.
        hint: &'static str,
    },
    /// A name option is empty or contains a forbidden character.
    #[error("invalid {0} of the mount: it must not be empty or contain {1}")]
    Option(&'static str, &'static str),
    /// mount(2) failed.
    #[error("mount(2) on {path} failed: {source}")]
    Kernel {
        /// Mount point.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The user is not root, and fusermount3 is missing.
    #[error("fusermount3 was not found; install the package fuse3 (apt install fuse3), or mount as root")]
    NoHelper,
    /// The helper does not permit allow_other for this user.
    #[error(
        "allow_other is not permitted: ask root to add the line user_allow_other to /etc/fuse.conf, or mount without allow_other"
    )]
    AllowOther,
    /// The user has no permission to open the device.
    #[error("permission denied on /dev/fuse; ask root to run chmod 666 /dev/fuse (the default of most distributions)")]
    DeviceDenied,
    /// The helper failed; its own message.
    #[error("fusermount3 failed: {0}")]
    Helper(String),
    /// The kernel's protocol version is not supported.
    #[error("the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) or later is needed")]
    Version {
        /// Major version of the kernel's protocol.
        major: u32,
        /// Minor version of the kernel's protocol.
        minor: u32,
    },
    /// The kernel's INIT did not arrive or was invalid.
    #[error("the kernel did not start the FUSE session: {0}")]
    Init(#[source] io::Error),
    /// Requests over io_uring were demanded, but are not possible.
    #[error("io_uring=on is not possible: {0}")]
    IoUring(#[source] IoUringError),
    /// Threads could not be started.
    #[error("cannot start a thread for the mount: {0}")]
    Thread(#[source] io::Error),
}

impl MountError {
    /// Returns the closest errno.
    pub fn errno(&self) -> Errno {
        let of = |e: &io::Error| Errno(e.raw_os_error().unwrap_or(Errno::EIO.0));
        match self {
            MountError::Device(e) | MountError::Init(e) | MountError::Thread(e) => of(e),
            MountError::Point { source, .. } | MountError::Kernel { source, .. } => of(source),
            MountError::Option(..) => Errno::EINVAL,
            MountError::NoHelper => Errno::ENOENT,
            MountError::AllowOther => Errno::EPERM,
            MountError::DeviceDenied => Errno::EACCES,
            MountError::Helper(_) => Errno::EPERM,
            MountError::Version { .. } => Errno::EPROTO,
            MountError::IoUring(IoUringError::NotPermitted) => Errno::EPERM,
            MountError::IoUring(IoUringError::Failed(e)) => of(e),
            MountError::IoUring(_) => Errno::EOPNOTSUPP,
        }
    }
}

/// Mounts and returns the device, on which the kernel's INIT is pending, and the mount point's full
/// path.
pub(crate) fn mount(options: &MountOptions, max_read: u32) -> Result<(OwnedFd, PathBuf), MountError> {
    check_names(options)?;
    let (point, mode) = directory(&options.mountpoint)?;
    if rustix::process::geteuid().is_root() {
        mount_as_root(options, &point, mode, max_read).map(|fd| (fd, point))
    } else {
        mount_by_helper(options, &point, max_read).map(|fd| (fd, point))
    }
}

/// Checks everything that needs no mounting: the names, the mount point if it exists, and access
/// to the device or the helper.
///
/// # Errors
/// As [`crate::Session::mount`].
pub fn check_mount(options: &MountOptions) -> Result<(), MountError> {
    check_names(options)?;
    match directory(&options.mountpoint) {
        Err(MountError::Point { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        found => drop(found?),
    }
    if rustix::process::geteuid().is_root() {
        return Device::open().map(drop).map_err(MountError::Device);
    }
    match Command::new(HELPER).arg("-V").stdin(Stdio::null()).output() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(MountError::NoHelper),
        _ => Ok(()),
    }
}

/// Checks the names in the mount table. A source may contain commas: they separate NIDs.
fn check_names(options: &MountOptions) -> Result<(), MountError> {
    let bad =
        |value: &str, more: &[char]| value.is_empty() || value.chars().any(|c| c.is_control() || more.contains(&c));
    if bad(&options.fsname, &['\\']) {
        return Err(MountError::Option("source name", "backslashes or control characters"));
    }
    if bad(&options.subtype, &['\\', ',']) {
        return Err(MountError::Option("subtype", "commas, backslashes or control characters"));
    }
    Ok(())
}

/// Returns the full path of a mount point and its mode.
fn directory(path: &Path) -> Result<(PathBuf, u32), MountError> {
    let point = std::fs::canonicalize(path).map_err(|e| point_error(path, e))?;
    let mode = rustix::fs::stat(&point).map_err(|e| point_error(&point, e.into()))?.st_mode;
    if mode & 0o170000 != 0o040000 {
        return Err(point_error(&point, rustix::io::Errno::NOTDIR.into()));
    }
    Ok((point, mode))
}

fn point_error(path: &Path, source: io::Error) -> MountError {
    let hint = match source.raw_os_error() {
        Some(e) if e == Errno::ENOTCONN.0 => "; a dead mount is still there: unmount it first",
        Some(e) if e == Errno::ENOENT.0 => "; create the directory first",
        _ => "",
    };
    MountError::Point { path: path.into(), source, hint }
}

fn mount_as_root(options: &MountOptions, point: &Path, mode: u32, max_read: u32) -> Result<OwnedFd, MountError> {
    let fd = Device::open().map_err(MountError::Device)?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},max_read={}",
        fd.as_raw_fd(),
        mode & 0o170000,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.max_read.unwrap_or(max_read),
    );
    for (on, text) in [(options.allow_other, ",allow_other"), (options.default_permissions, ",default_permissions")] {
        if on {
            data.push_str(text);
        }
    }
    let data = CString::new(data).map_err(|_| MountError::Option("source name", "NUL bytes"))?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.fsname.as_str(), point, kind.as_str(), options.flags.bits(), data.as_c_str())
        .map_err(|e| MountError::Kernel { path: point.into(), source: e.into() })?;
    Ok(fd)
}

/// Returns the helper's `-o` argument. The helper removes the backslashes before commas of the
/// source.
fn helper_options(options: &MountOptions, max_read: u32) -> String {
    let mut text = format!("fsname={},subtype={}", options.fsname.replace(',', "\\,"), options.subtype);
    text.push_str(&format!(",max_read={}", options.max_read.unwrap_or(max_read)));
    let own = [(options.allow_other, "allow_other"), (options.default_permissions, "default_permissions")];
    let own = own.into_iter().filter_map(|(on, word)| on.then_some(word));
    for word in own.chain(options.flags.words()) {
        text.push(',');
        text.push_str(word);
    }
    text
}

fn mount_by_helper(options: &MountOptions, point: &Path, max_read: u32) -> Result<OwnedFd, MountError> {
    let failed = |e: io::Error| MountError::Helper(e.to_string());
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| failed(e.into()))?;
    let theirs_raw = theirs.as_raw_fd();
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(options, max_read)).arg("--").arg(point);
    command.env(HELPER_SOCKET, theirs_raw.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe and allocates
    // nothing. The descriptor is open there, because `theirs` lives until after the spawn.
    unsafe {
        command.pre_exec(move || {
            let theirs = std::os::fd::BorrowedFd::borrow_raw(theirs_raw);
            Ok(fcntl_setfd(theirs, FdFlags::empty())?)
        });
    }
    let mut child = command
        .spawn()
        .map_err(|e| if e.kind() == io::ErrorKind::NotFound { MountError::NoHelper } else { failed(e) })?;
    drop(theirs); // otherwise the receive below would not end when the helper dies
    let device = receive_fd(&ours);
    let mut message = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(HELPER_MESSAGE_BYTES_MAX).read_to_end(&mut message);
    }
    let status = child.wait().map_err(failed)?;
    match device {
        Ok(Some(fd)) if status.success() => Ok(fd),
        Err(e) if status.success() => Err(failed(e)),
        _ => Err(helper_error(&String::from_utf8_lossy(&message))),
    }
}

fn helper_error(message: &str) -> MountError {
    let message = message.trim();
    if message.contains("user_allow_other") {
        MountError::AllowOther
    } else if message.contains("/dev/fuse: Permission denied") {
        MountError::DeviceDenied
    } else if message.is_empty() {
        MountError::Helper("no error message".into())
    } else {
        MountError::Helper(message.trim_start_matches(HELPER).trim_start_matches(": ").into())
    }
}

/// Waits for the descriptor that the helper sends. Returns `None` if the helper ended without
/// sending one.
fn receive_fd(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
            Ok(_) => break,
        }
    }
    let mut received = control.drain().filter_map(|m| match m {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(received.next())
}

/// Unmounts the file system at `path`, even if its process is dead. As an ordinary user this runs
/// fusermount3.
///
/// With `lazy`, a mount in use is removed from the tree at once and ends when its last user closes
/// it.
///
/// # Errors
/// EBUSY if the mount is in use and `lazy` is false. EINVAL if nothing is mounted at `path`.
pub fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    let path = full_path(path);
    let plain = unmount_once(&path, false);
    match plain {
        Err(e) if lazy && e.raw_os_error() == Some(Errno::EBUSY.0) => unmount_once(&path, true),
        other => other,
    }
}

/// Returns the full path without accessing the mount itself, which may be dead.
fn full_path(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent == Path::new("") { Path::new(".") } else { parent };
            std::fs::canonicalize(parent).map_or_else(|_| path.into(), |p| p.join(name))
        }
        _ => std::fs::canonicalize(path).unwrap_or_else(|_| path.into()),
    }
}

fn unmount_once(path: &Path, lazy: bool) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(path, flags)?);
    }
    unmount_by_helper(path, lazy)
}

fn unmount_by_helper(path: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
    let output = command.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(e.kind(), MountError::NoHelper.to_string()),
        _ => e,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(if message.contains("busy") {
        Errno::EBUSY.into()
    } else if message.contains("not found in") || message.contains("Invalid argument") {
        Errno::EINVAL.into()
    } else {
        io::Error::other(message.trim().to_string())
    })
}

/// Returns the unique id of a mount, which the kernel never reuses. `None` before Linux 6.8. Sends
/// no request to the file system, which may not answer.
pub(crate) fn unique_id(mountpoint: &Path) -> Option<u64> {
    /// STATX_MNT_ID_UNIQUE.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, UNIQUE).ok()?;
    (found.stx_mask & UNIQUE.bits() != 0).then_some(found.stx_mnt_id)
}

/// Sets the kernel's readahead on the mount of a connection. The value negotiated at INIT can
/// only reduce it. The window has at least one page: without any, the kernel would request page by
/// page, also where a program reads more at once.
pub(crate) fn set_readahead(connection: u32, bytes: u64) -> io::Result<()> {
    let bytes = bytes.max(rustix::param::page_size() as u64);
    std::fs::write(format!("/sys/class/bdi/0:{connection}/read_ahead_kb"), (bytes >> 10).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table::connection_number;

    #[test]
    fn fusermount_errors_say_what_to_do() {
        let e = helper_error(
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n",
        );
        assert!(matches!(e, MountError::AllowOther));
        assert!(e.to_string().contains("user_allow_other"));
        let e = helper_error("fusermount3: user has no write access to mountpoint /x\n");
        assert_eq!(e.to_string(), "fusermount3 failed: user has no write access to mountpoint /x");
        let e = helper_error("fusermount3: failed to open /dev/fuse: Permission denied\n");
        assert_eq!((e.errno(), e.to_string().contains("chmod")), (Errno::EACCES, true));
        assert!(MountError::NoHelper.to_string().contains("fuse3"));
    }

    #[test]
    fn fusermount_receives_every_option() {
        let mut options = MountOptions::new("/m", "host@tcp:/fs");
        assert_eq!(helper_options(&options, 4096), "fsname=host@tcp:/fs,subtype=sheen,max_read=4096");
        options.allow_other = true;
        options.flags.read_only = true;
        options.max_read = Some(8192);
        assert_eq!(helper_options(&options, 4096), "fsname=host@tcp:/fs,subtype=sheen,max_read=8192,allow_other,ro");
        let two = MountOptions::new("/m", "a@tcp,b@tcp:/fs");
        assert_eq!(helper_options(&two, 4096), "fsname=a@tcp\\,b@tcp:/fs,subtype=sheen,max_read=4096");
    }

    /// The helper works for root, too. Tests with real mounts use the descriptor; this test does
    /// not.
    #[test]
    fn fusermount_mounts_and_unmounts() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let fd = match mount_by_helper(&MountOptions::new(&point, "a b"), &point, 4096) {
            Ok(fd) => fd,
            Err(e @ (MountError::NoHelper | MountError::Helper(_))) => return eprintln!("skipped: {e}"),
            Err(e) => panic!("{e}"),
        };
        let number = connection_number(&point);
        assert!(number.is_some());
        drop(fd); // as if the process had died: the mount is dead, and can still be unmounted
        unmount_by_helper(&full_path(&point), false).unwrap();
        assert_eq!(connection_number(&point), None);
        assert!(unmount_by_helper(&point, false).is_err());
    }

    #[test]
    fn mount_refuses_mount_points_that_are_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        let e = mount(&MountOptions::new(dir.path().join("none"), "x"), 4096).unwrap_err();
        assert_eq!(e.errno(), Errno::ENOENT);
        assert!(e.to_string().ends_with("create the directory first"), "{e}");
        assert_eq!(mount(&MountOptions::new(&file, "x"), 4096).unwrap_err().errno(), Errno::ENOTDIR);
        assert_eq!(check_mount(&MountOptions::new(&file, "x")).unwrap_err().errno(), Errno::ENOTDIR);
    }

    #[test]
    fn mount_refuses_names_with_separators() {
        let sources = ["", "a\\", "a\nb"].map(|bad| MountOptions::new("/", bad));
        let subtypes = ["", "a,suid", "a\\", "a\nb"]
            .map(|bad| MountOptions { subtype: bad.into(), ..MountOptions::new("/", "a") });
        for options in sources.into_iter().chain(subtypes) {
            assert!(matches!(mount(&options, 4096), Err(MountError::Option(..))), "{options:?}");
            assert!(matches!(check_mount(&options), Err(MountError::Option(..))), "{options:?}");
        }
    }

    #[test]
    fn a_source_with_several_nids_is_accepted() {
        for source in ["a@tcp,b@tcp:/fs", "a@tcp:b@tcp:/fs"] {
            assert!(check_names(&MountOptions::new("/", source)).is_ok(), "{source}");
        }
    }
}
