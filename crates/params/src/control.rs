//! The control socket: how `lctl` reaches the parameters of every process of this machine.
//!
//! A process listens on `<pid>.sock` in its runtime directory. A connection carries one request and one reply, each a line of
//! JSON. The socket can be reached by its owner (and root) alone: the directory has mode 0700, the socket 0600.
//!
//! Served by a thread of its own that sleeps in `accept`: it costs nothing while idle and answers even when the runtime
//! is stuck, which is when one wants to look. One connection at a time; a peer that stalls is cut off after [`STALL`].

#![allow(
    clippy::disallowed_methods,
    reason = "a control socket lies outside the simulated world: no file system data passes here"
)]

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sheen_wire::Errno;

use crate::{Device, Found, Node, ParamError, Params};

/// Longest request, in bytes: a pattern and a value.
pub const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest reply, in bytes: some 100,000 parameters.
pub const REPLY_BYTES_MAX: u64 = 16 << 20;
/// How long a peer may keep the other waiting for its next bytes.
pub const STALL: Duration = Duration::from_secs(5);
/// Names the runtime directory, for tests and for several systems side by side.
pub const DIR_ENV: &str = "SHEEN_RUNTIME_DIR";

/// What is asked of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Names that match.
    List {
        /// Shell pattern.
        pattern: String,
    },
    /// Values that match.
    Get {
        /// Shell pattern.
        pattern: String,
    },
    /// Sets all that match.
    Set {
        /// Shell pattern.
        pattern: String,
        /// The new value.
        value: String,
    },
    /// The devices.
    Devices,
    /// The NIDs of the process.
    Nids,
}

/// What a process answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `List`.
    Nodes(Vec<Node>),
    /// To `Get`.
    Values(Vec<Found>),
    /// To `Set`.
    Results(Vec<SetResult>),
    /// To `Devices`.
    Devices(Vec<Device>),
    /// To `Nids`.
    Nids(Vec<String>),
    /// Nothing matched, or the request made no sense.
    Error {
        /// Linux's number.
        errno: i32,
    },
}

/// What became of setting one parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetResult {
    /// With dots.
    pub name: String,
    /// 0, or Linux's number.
    pub errno: i32,
    /// What would be accepted, where that is known.
    pub accepts: Option<String>,
}

/// The control socket of this process; closed and removed when dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Control {
    /// Serves `params` in this user's runtime directory ([`runtime_dir`]).
    ///
    /// # Errors
    /// The directory cannot be made or belongs to another user; the socket cannot be bound.
    pub fn serve(params: &Params) -> io::Result<Control> {
        Control::serve_in(&runtime_dir(), params)
    }

    /// Serves `params` in `dir`, which is made with mode 0700 if missing.
    ///
    /// # Errors
    /// As [`Control::serve`].
    pub fn serve_in(dir: &Path, params: &Params) -> io::Result<Control> {
        private_dir(dir)?;
        remove_stale(dir);
        let path = dir.join(format!("{}.sock", std::process::id()));
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, params) = (stop.clone(), params.clone());
        let thread =
            std::thread::Builder::new().name("control".into()).spawn(move || run(&listener, &params, &seen))?;
        Ok(Control { path, stop, thread: Some(thread) })
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // A connection wakes the thread from accept.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn run(listener: &UnixListener, params: &Params, stop: &AtomicBool) {
    loop {
        let peer = listener.accept();
        if stop.load(Relaxed) {
            return;
        }
        match peer {
            // A failure is the peer's loss: it went away, stalled or sent nonsense.
            Ok((stream, _)) => drop(serve_one(&stream, params)),
            // Out of file descriptors: wait for some to be closed rather than spin.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve_one(stream: &UnixStream, params: &Params) -> io::Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    let reply = match serde_json::from_str(&read_line(stream, REQUEST_BYTES_MAX)?) {
        Ok(request) => answer(&request, params),
        Err(_) => Reply::Error { errno: Errno::EPROTO.0 },
    };
    write_line(stream, &reply)
}

/// Executes a request on the parameters of this process.
pub fn answer(request: &Request, params: &Params) -> Reply {
    let reply = match request {
        Request::List { pattern } => params.list(pattern).map(Reply::Nodes),
        Request::Get { pattern } => params.get(pattern).map(Reply::Values),
        Request::Set { pattern, value } => params.set(pattern, value).map(|results| {
            let result = |set: crate::Set| {
                let (errno, accepts) = set.result.err().map_or((0, None), |e| (e.errno.0, e.accepts));
                SetResult { name: set.name, errno, accepts }
            };
            Reply::Results(results.into_iter().map(result).collect())
        }),
        Request::Devices => Ok(Reply::Devices(params.devices())),
        Request::Nids => Ok(Reply::Nids(params.nids())),
    };
    reply.unwrap_or_else(|ParamError { errno, .. }| Reply::Error { errno: errno.0 })
}

/// Asks the process behind a socket.
///
/// # Errors
/// ConnectionRefused, NotFound: that process has ended. PermissionDenied: it is another user's. InvalidData: not a Sheen process.
pub fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    write_line(&stream, request)?;
    Ok(serde_json::from_str(&read_line(&stream, REPLY_BYTES_MAX)?)?)
}

fn read_line(stream: &UnixStream, max: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream).take(max).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn write_line<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The directory of this user's control sockets: `$SHEEN_RUNTIME_DIR`; for root `/run/sheen`; else `$XDG_RUNTIME_DIR/sheen`; else
/// `/tmp/sheen-<uid>`.
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

/// The control sockets that this user may reach, sorted; root reaches everybody's.
pub fn sockets() -> Vec<PathBuf> {
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
    let mut found: Vec<_> = dirs.iter().flat_map(|d| sockets_in(d)).collect();
    found.sort();
    found
}

/// The control sockets in one directory, sorted.
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

/// Makes `dir` with mode 0700. One that exists must be ours and closed to others: whoever may write there could pose as us.
fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let meta = fs::symlink_metadata(dir)?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if ours {
        return Ok(());
    }
    let text = format!(
        "{} must be a directory of yours that others cannot write to; remove it, or set {DIR_ENV}",
        dir.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Removes what processes that were killed left behind.
fn remove_stale(dir: &Path) {
    for socket in sockets_in(dir) {
        if UnixStream::connect(&socket).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(&socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::Param;

    #[test]
    fn answers_through_the_socket_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("run");
        let params = Params::new();
        params.register("osc.a.max_dirty_mb", Param::atomic(1..=100, Arc::new(AtomicU64::new(8))));
        params.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
        params.add_nid("127.0.0.1@tcp");
        let control = Control::serve_in(&dir, &params).unwrap();
        let socket = control.path().to_path_buf();
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
        assert_eq!(sockets_in(&dir), [control.path()]);

        let set = |value: &str| Request::Set { pattern: "osc.*.max_dirty_mb".into(), value: value.into() };
        let Reply::Results(results) = ask(&socket, &set("64")).unwrap() else { panic!() };
        assert_eq!(results[0].errno, 0);
        let Reply::Results(results) = ask(&socket, &set("101")).unwrap() else { panic!() };
        assert_eq!((results[0].errno, results[0].accepts.as_deref()), (34, Some("1 to 100")));
        let Reply::Values(values) = ask(&socket, &Request::Get { pattern: "osc.*.*".into() }).unwrap() else {
            panic!()
        };
        assert_eq!(values, [Found { name: "osc.a.max_dirty_mb".into(), value: "64".into(), writable: true }]);
        assert_eq!(ask(&socket, &Request::Get { pattern: "no".into() }).unwrap(), Reply::Error { errno: 2 });
        assert_eq!(ask(&socket, &Request::Nids).unwrap(), Reply::Nids(vec!["127.0.0.1@tcp".into()]));
        let Reply::Devices(devices) = ask(&socket, &Request::Devices).unwrap() else { panic!() };
        assert_eq!(devices[0].name, "MGS");

        drop(control);
        assert!(ask(&socket, &Request::Nids).is_err());
        assert!(sockets_in(&dir).is_empty());
    }

    #[test]
    fn nonsense_is_answered_and_does_not_end_the_service() {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::serve_in(&dir.path().join("run"), &Params::new()).unwrap();
        let stream = UnixStream::connect(control.path()).unwrap();
        (&stream).write_all(b"{\"op\":\"explode\"}\n").unwrap();
        assert_eq!(read_line(&stream, 1000).unwrap(), "{\"error\":{\"errno\":71}}\n");
        drop(UnixStream::connect(control.path()).unwrap());
        let mut flood = UnixStream::connect(control.path()).unwrap();
        // The service stops reading at its bound, so the rest may meet a closed socket.
        let _ = flood.write_all(&vec![b'x'; 2 * REQUEST_BYTES_MAX as usize]);
        assert_eq!(ask(control.path(), &Request::Nids).unwrap(), Reply::Nids(vec![]));
    }

    #[test]
    fn sockets_of_the_dead_are_removed_and_open_directories_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(dir.path().join("1.sock")).unwrap());
        assert_eq!(sockets_in(dir.path()).len(), 1);
        let control = Control::serve_in(dir.path(), &Params::new()).unwrap();
        assert_eq!(sockets_in(dir.path()), [control.path()]);

        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let error = Control::serve_in(&open, &Params::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
