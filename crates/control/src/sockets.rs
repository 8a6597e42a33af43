//! The runtime directories, and the control sockets in them.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Environment variable with the runtime directory, for tests and for several systems side by side.
pub const DIR_ENV: &str = "SHEEN_RUNTIME_DIR";

/// The directory of root's control sockets.
const ROOT_DIR: &str = "/run/sheen";
/// Added to the name of a directory of control sockets: the directory of public sockets.
const PUBLIC_SUFFIX: &str = "-public";
/// Mode of the directory of public sockets.
const PUBLIC_DIR_MODE: u32 = 0o755;

/// Returns the directory of this user's control sockets: `$SHEEN_RUNTIME_DIR`; for root
/// `/run/sheen`; else `$XDG_RUNTIME_DIR/sheen`; else `/tmp/sheen-<uid>`.
pub fn runtime_dir() -> PathBuf {
    let uid = rustix::process::geteuid();
    if let Some(dir) = named_dir() {
        return dir;
    }
    if uid.is_root() {
        return ROOT_DIR.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_dir()) {
        Some(dir) => dir.join("sheen"),
        None => format!("/tmp/sheen-{}", uid.as_raw()).into(),
    }
}

/// Returns `$SHEEN_RUNTIME_DIR`, if it is set.
fn named_dir() -> Option<PathBuf> {
    std::env::var_os(DIR_ENV).filter(|d| !d.is_empty()).map(PathBuf::from)
}

/// Returns the directory of public sockets: `$SHEEN_RUNTIME_DIR-public`, else `/run/sheen-public`.
/// `None`: the variable names no directory that can have a sibling, such as `/`.
pub(crate) fn public_dir() -> Option<PathBuf> {
    public_sibling(&named_dir().unwrap_or_else(|| ROOT_DIR.into()))
}

fn public_sibling(dir: &Path) -> Option<PathBuf> {
    let mut name = dir.file_name()?.to_owned();
    name.push(PUBLIC_SUFFIX);
    Some(dir.with_file_name(name))
}

/// Returns the public sockets of processes whose control sockets this user cannot reach, sorted.
/// Through these sockets all users may list and read public parameters. Root uses control sockets
/// only.
pub fn public_sockets() -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let private = named_dir().unwrap_or_else(|| ROOT_DIR.into());
    public_sibling(&private).map(|public| public_sockets_in(&public, &private)).unwrap_or_default()
}

/// Returns the public sockets in `public` that have no reachable control socket in `private`. A
/// directory that is not trusted has none: its sockets could belong to anyone.
pub(crate) fn public_sockets_in(public: &Path, private: &Path) -> Vec<PathBuf> {
    if !is_trusted(public) {
        return Vec::new();
    }
    let mut found = sockets_in(public);
    found.retain(|socket| {
        let name = socket.file_name().unwrap_or_default();
        rustix::fs::access(private.join(name), Access::WRITE_OK).is_err()
    });
    found
}

/// Whether nobody but root, this user, and a user to whom root gave the directory can put sockets
/// there. Root gave it to its owner if only root can change the directory above it, such as `/run`.
fn is_trusted(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_closed = |meta: &fs::Metadata| meta.is_dir() && meta.mode() & 0o022 == 0;
    let Ok(meta) = fs::symlink_metadata(dir) else { return false };
    let is_from_root = || {
        let parent = dir.parent().and_then(|parent| fs::metadata(parent).ok());
        parent.is_some_and(|parent| is_closed(&parent) && parent.uid() == 0)
    };
    is_closed(&meta) && ([0, own].contains(&meta.uid()) || is_from_root())
}

/// Whether `dir` exists and belongs to this user.
pub(crate) fn is_own(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw())
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
        dirs.push(ROOT_DIR.into());
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
    check_own(dir)
}

/// Creates `dir` so that all users can reach the sockets in it, and only this user can change it.
/// An existing directory must belong to this user and not be writable by others.
pub(crate) fn make_public_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PUBLIC_DIR_MODE).create(dir)?;
    check_own(dir)?;
    // The umask may have removed bits.
    fs::set_permissions(dir, Permissions::from_mode(PUBLIC_DIR_MODE))
}

fn check_own(dir: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_directory_is_beside_the_runtime_directory() {
        for (dir, public) in [("/run/sheen", "/run/sheen-public"), ("/tmp/a/", "/tmp/a-public"), ("run", "run-public")]
        {
            assert_eq!(public_sibling(Path::new(dir)), Some(public.into()), "{dir}");
        }
        assert_eq!(public_sibling(Path::new("/")), None);
    }

    #[test]
    fn directory_of_another_user_is_trusted_only_if_root_gave_it() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can give a directory to a user");
        }
        let above = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(above.path(), Permissions::from_mode(mode)).unwrap();
        let dir = above.path().join("run-public");
        make_public_dir(&dir).unwrap();
        mode(0o1777);
        assert!(is_trusted(&dir) && is_own(&dir), "it belongs to this user");
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
        assert!(!is_trusted(&dir) && !is_own(&dir), "its owner could have made it");
        mode(0o755);
        assert!(is_trusted(&dir));
        fs::set_permissions(&dir, Permissions::from_mode(0o775)).unwrap();
        assert!(!is_trusted(&dir) && !is_trusted(&dir.join("absent")));
    }
}
