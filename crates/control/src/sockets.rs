//! The runtime directories, and the control sockets in them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Environment variable with the runtime directory, for tests and for several systems side by side.
pub const DIR_ENV: &str = "SHEEN_RUNTIME_DIR";

/// Returns the directory of this user's control sockets: `$SHEEN_RUNTIME_DIR`; for root
/// `/run/sheen`; else `$XDG_RUNTIME_DIR/sheen`; else `/tmp/sheen-<uid>`.
pub fn runtime_dir() -> PathBuf {
    let uid = rustix::process::geteuid();
    if let Some(dir) = std::env::var_os(DIR_ENV).filter(|d| !d.is_empty()) {
        return dir.into();
    }
    if uid.is_root() {
        return "/run/sheen".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_dir()) {
        Some(dir) => dir.join("sheen"),
        None => format!("/tmp/sheen-{}", uid.as_raw()).into(),
    }
}

/// Returns the control sockets that this user can reach, sorted. Root reaches those of all users
/// and all file systems, unless `$SHEEN_RUNTIME_DIR` names one directory. `$XDG_RUNTIME_DIR` does
/// not restrict root: it only determines where the processes of an ordinary user listen.
pub fn sockets() -> Vec<PathBuf> {
    let mut found: Vec<_> = dirs().iter().flat_map(|d| sockets_in(d)).collect();
    found.sort();
    found
}

/// Returns the directories in which [`sockets`] looks.
fn dirs() -> Vec<PathBuf> {
    let mut dirs = vec![runtime_dir()];
    if std::env::var_os(DIR_ENV).is_none() {
        dirs.push("/run/sheen".into());
        if rustix::process::geteuid().is_root() {
            dirs.extend(children("/run/user").into_iter().map(|d| d.join("sheen")));
            dirs.extend(children("/tmp").into_iter().filter(|d| name_of(d).starts_with("sheen-")));
        } else {
            dirs.push(format!("/tmp/sheen-{}", rustix::process::geteuid().as_raw()).into());
        }
    }
    dirs.sort();
    dirs.dedup();
    dirs
}

/// Whether a directory in which this user looks for sockets is closed to it: other users' processes
/// may run, which this user may not query.
pub fn is_closed() -> bool {
    dirs().iter().any(|dir| fs::read_dir(dir).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied))
}

/// Returns the control sockets in one directory, sorted.
pub fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    let is_socket = |p: &PathBuf| fs::symlink_metadata(p).is_ok_and(|m| m.file_type().is_socket());
    let mut found: Vec<_> =
        children(dir).into_iter().filter(|p| name_of(p).ends_with(".sock") && is_socket(p)).collect();
    found.sort();
    found
}

fn children(dir: impl AsRef<Path>) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|entries| entries.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}

fn name_of(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Creates `dir` with mode 0700. An existing directory must belong to this user and be closed to
/// others: a user who can write there could impersonate a process of this user.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let meta = fs::symlink_metadata(dir)?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if ours {
        return Ok(());
    }
    let text = format!(
        "{} must belong to you and not be writable by other users; remove it, or set {DIR_ENV} to another directory",
        dir.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Removes the sockets of processes that were killed.
pub(crate) fn remove_stale(dir: &Path) {
    for socket in sockets_in(dir) {
        if connect(&socket).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(&socket);
        }
    }
}

/// Connects without waiting. A stopped process accepts no connections: once its queue is full, the
/// kernel would block this connect for ever. Without waiting, the connect fails with WouldBlock.
pub(crate) fn connect(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
