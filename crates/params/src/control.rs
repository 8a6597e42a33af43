//! The control socket, through which `lctl` reaches the parameters of every process of this
//! machine.
//!
//! A process listens on `<pid>.sock` in its runtime directory. A connection carries one request and
//! one reply, each a line of JSON. Only the owner of the process and root can reach the socket: the
//! directory has mode 0700, the socket 0600.
//!
//! A separate thread blocks in `accept`. It costs nothing while idle, and answers even if the
//! runtime is stuck, which is when an administrator needs it. Each connection gets a thread, up to
//! a limit. A peer that stalls is disconnected after [`STALL`].
//!
//! A running process accepts at once; a stopped process does not. The server therefore sends a
//! greeting before it reads the request. A client that receives no greeting times out after
//! [`GREETING_WAIT`]. A request that takes long in a running process has until [`STALL`]. The
//! greeting is white space before the JSON of the reply, which older clients skip. An older server
//! sends only the reply.
//!
//! Invariant: a process does not execute a request whose sender timed out before the greeting. When
//! the process is resumed, its greeting fails, and it does not read the request.

#![allow(
    clippy::disallowed_methods,
    reason = "a control socket lies outside the simulated world: no file system data passes here"
)]

use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use sheen_wire::Errno;

use crate::fsname::fsname_of;
use crate::{Device, Found, Node, ParamError, Params, Set};

/// Longest request, in bytes: a pattern and a value.
pub const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest reply, in bytes: some 100,000 parameters.
pub const REPLY_BYTES_MAX: u64 = 16 << 20;
/// Time limit for a peer to send or to take its next bytes.
pub const STALL: Duration = Duration::from_secs(5);
/// Time limit for a process to send its greeting. Its thread waits only for a processor, so this is
/// ample on a loaded host. A user hardly notices it.
pub const GREETING_WAIT: Duration = Duration::from_millis(300);
/// Number of parts of that wait. A pause of the whole machine, such as a virtual one, uses up one
/// part; the process still has the others.
const GREETING_WAIT_PARTS: u32 = 3;
/// Sent to a peer at once, before its request is read.
const GREETING: &[u8] = b" ";
/// Connections that a process serves in threads of their own. The accepting thread serves a further
/// one itself; later ones wait for it.
const SERVED_AT_ONCE_MAX: usize = 16;
/// Processes that are queried at once. If there are more, they are queried in groups.
const ASKED_AT_ONCE_MAX: usize = 64;
/// Environment variable with the runtime directory, for tests and for several systems side by side.
pub const DIR_ENV: &str = "SHEEN_RUNTIME_DIR";

/// A request to a process.
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
    /// Another request, restricted to one file system. It is a variant of its own: a process that
    /// does not know it refuses it, instead of setting parameters of other file systems.
    Of {
        /// The file system.
        fsname: String,
        /// Any other request.
        request: Box<Request>,
    },
}

/// The reply of a process.
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
    /// Nothing matched, or the request was invalid.
    Error {
        /// Linux's errno.
        errno: i32,
    },
}

/// Result of setting one parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetResult {
    /// With dots.
    pub name: String,
    /// 0, or Linux's errno.
    pub errno: i32,
    /// The accepted values, if they are known.
    pub accepts: Option<String>,
    /// The file systems that the parameter belongs to: all of the process if its name contains
    /// none.
    #[serde(default)]
    pub fsnames: Vec<String>,
}

/// The control socket of this process. It is closed and removed when this is dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
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
        let thread = thread::Builder::new().name("control".into()).spawn(move || run(&listener, &params, &seen))?;
        Ok(Control { path, stop, thread: Some(thread) })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // A connection wakes the thread that blocks in accept.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn run(listener: &UnixListener, params: &Params, stop: &AtomicBool) {
    // Each connection that is being served holds another reference.
    let served = Arc::new(());
    thread::scope(|scope| {
        loop {
            let peer = listener.accept();
            if stop.load(Relaxed) {
                return;
            }
            let Ok((stream, _)) = peer else {
                // Out of file descriptors: wait until some are closed, instead of spinning.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let is_full = Arc::strong_count(&served) > SERVED_AT_ONCE_MAX;
            let ticket = served.clone();
            let serve = move || {
                // An error concerns only the peer: it disconnected, stalled or sent an invalid
                // request.
                let _ = serve_one(&stream, params);
                drop(ticket);
            };
            if is_full {
                serve();
            } else {
                // If no thread can be started, the peer finds its connection closed.
                let _ = thread::Builder::new().name("control".into()).spawn_scoped(scope, serve);
            }
        }
    });
}

fn serve_one(mut stream: &UnixStream, params: &Params) -> io::Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    stream.write_all(GREETING)?;
    let reply = match serde_json::from_str(&read_line(stream, REQUEST_BYTES_MAX)?) {
        Ok(request) => answer(&request, params),
        Err(_) => Reply::Error { errno: Errno::EPROTO.0 },
    };
    write_line(stream, &reply)
}

/// Executes a request on the parameters of this process.
pub fn answer(request: &Request, params: &Params) -> Reply {
    let (request, fsname) = match request {
        Request::Of { fsname, request } => (&**request, Some(&fsname[..])),
        request => (request, None),
    };
    let reply = match request {
        Request::List { pattern } => params.list_of(pattern, fsname).map(Reply::Nodes),
        Request::Get { pattern } => params.get_of(pattern, fsname).map(Reply::Values),
        Request::Set { pattern, value } => params
            .set_of(pattern, value, fsname)
            .map(|results| Reply::Results(results.into_iter().map(|set| result_of(set, params)).collect())),
        Request::Devices => Ok(Reply::Devices(params.devices_of(fsname))),
        Request::Nids if fsname.is_some_and(|fsname| !params.fsnames().contains(fsname)) => Err(Errno::ENOENT.into()),
        Request::Nids => Ok(Reply::Nids(params.nids())),
        Request::Of { .. } => Err(Errno::EPROTO.into()),
    };
    reply.unwrap_or_else(|ParamError { errno, .. }| Reply::Error { errno: errno.0 })
}

fn result_of(set: Set, params: &Params) -> SetResult {
    let fsnames = match fsname_of(&set.name) {
        Some(fsname) => vec![fsname.to_owned()],
        None => params.fsnames().into_iter().collect(),
    };
    let (errno, accepts) = set.result.err().map_or((0, None), |e| (e.errno.0, e.accepts));
    SetResult { name: set.name, errno, accepts, fsnames }
}

/// Why a process sent no reply.
#[derive(Debug, thiserror::Error)]
pub enum NoReply {
    /// The process did not respond for this time: it is stopped, or it hangs.
    #[error("no answer within {} ms", .0.as_millis())]
    Silent(Duration),
    /// ConnectionRefused, NotFound: that process has ended. PermissionDenied: it belongs to another
    /// user. InvalidData: not a Sheen process.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// A process that did not answer in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Silent {
    /// Its control socket.
    pub socket: PathBuf,
    /// Time that the caller waited for it.
    pub waited: Duration,
}

impl Silent {
    /// Returns the process id, from the name of the socket.
    pub fn pid(&self) -> Option<u32> {
        self.socket.file_stem()?.to_str()?.parse().ok()
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid() {
            Some(pid) => write!(f, "process {pid}")?,
            None => write!(f, "the process of {}", self.socket.display())?,
        }
        write!(f, " does not answer within {} ms", self.waited.as_millis())
    }
}

/// Replies to a request to several processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replies {
    /// In the order of the sockets.
    pub replies: Vec<Reply>,
    /// The processes that did not answer in time, in the same order.
    pub silent: Vec<Silent>,
}

/// Queries the processes behind several sockets at once: all together take as long as the slowest
/// one. Skips processes that have ended or belong to another user.
pub fn ask_all(sockets: &[PathBuf], request: &Request) -> Replies {
    let mut all = Replies::default();
    for sockets in sockets.chunks(ASKED_AT_ONCE_MAX) {
        for (socket, reply) in sockets.iter().zip(ask_together(sockets, request)) {
            match reply {
                Ok(reply) => all.replies.push(reply),
                Err(NoReply::Silent(waited)) => all.silent.push(Silent { socket: socket.clone(), waited }),
                Err(NoReply::Failed(_)) => {}
            }
        }
    }
    all
}

/// Queries each socket in a thread of its own.
fn ask_together(sockets: &[PathBuf], request: &Request) -> Vec<Result<Reply, NoReply>> {
    if let [socket] = sockets {
        return vec![ask(socket, request)];
    }
    thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .map(|socket| thread::Builder::new().spawn_scoped(scope, move || ask(socket, request)))
            .collect();
        let replies = threads.into_iter().zip(sockets).map(|(thread, socket)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Other).into())),
            // No thread could be started: query this socket from here.
            Err(_) => ask(socket, request),
        });
        replies.collect()
    })
}

/// Sends a request to the process behind a socket. Returns its reply.
///
/// # Errors
/// [`NoReply`].
pub fn ask(socket: &Path, request: &Request) -> Result<Reply, NoReply> {
    let (stream, first) = begin(socket, request).map_err(|e| after(GREETING_WAIT, e))?;
    finish(&stream, first).map_err(|e| after(STALL, e))
}

fn after(waited: Duration, error: io::Error) -> NoReply {
    if is_timeout(&error) { NoReply::Silent(waited) } else { NoReply::Failed(error) }
}

/// Sends the request and waits for the first byte: the greeting, or an older server's reply.
fn begin(socket: &Path, request: &Request) -> io::Result<(UnixStream, [u8; 1])> {
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(GREETING_WAIT / GREETING_WAIT_PARTS))?;
    stream.set_write_timeout(Some(GREETING_WAIT))?;
    write_line(&stream, request)?;
    let mut first = [0];
    for _ in 1..GREETING_WAIT_PARTS {
        match (&stream).read_exact(&mut first) {
            Err(e) if is_timeout(&e) => {}
            read => return read.map(|()| (stream, first)),
        }
    }
    (&stream).read_exact(&mut first)?;
    Ok((stream, first))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn finish(stream: &UnixStream, first: [u8; 1]) -> io::Result<Reply> {
    stream.set_read_timeout(Some(STALL))?;
    let line = read_line((&first[..]).chain(stream), REPLY_BYTES_MAX)?;
    Ok(serde_json::from_str(&line)?)
}

/// Connects without waiting. A stopped process accepts no connections: once its queue is full, the
/// kernel would block this connect for ever. Without waiting, the connect fails with WouldBlock.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn read_line(from: impl Read, max: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from).take(max).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn write_line<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

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
fn private_dir(dir: &Path) -> io::Result<()> {
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
fn remove_stale(dir: &Path) {
    for socket in sockets_in(dir) {
        if connect(&socket).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(&socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;

    use parking_lot::Mutex;

    use super::*;
    use crate::Param;

    #[test]
    fn control_socket_answers_requests_and_is_removed_on_drop() {
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
    fn control_socket_survives_invalid_requests() {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::serve_in(&dir.path().join("run"), &Params::new()).unwrap();
        let stream = UnixStream::connect(control.path()).unwrap();
        (&stream).write_all(b"{\"op\":\"explode\"}\n").unwrap();
        assert_eq!(read_line(&stream, 1000).unwrap(), " {\"error\":{\"errno\":71}}\n");
        drop(UnixStream::connect(control.path()).unwrap());
        let mut flood = UnixStream::connect(control.path()).unwrap();
        // The service stops reading at its limit, so the last bytes may meet a closed socket.
        let _ = flood.write_all(&vec![b'x'; 2 * REQUEST_BYTES_MAX as usize]);
        assert_eq!(ask(control.path(), &Request::Nids).unwrap(), Reply::Nids(vec![]));
    }

    #[test]
    fn ask_all_reports_a_hung_process_and_returns_other_replies() {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::serve_in(dir.path(), &Params::new()).unwrap();
        let (hung, full) = (dir.path().join("4000000001.sock"), dir.path().join("4000000002.sock"));
        // The kernel accepts connections for a stopped process until its queue is full.
        let listeners = [UnixListener::bind(&hung).unwrap(), UnixListener::bind(&full).unwrap()];
        rustix::net::listen(&listeners[1], 0).unwrap();
        let _waiting = UnixStream::connect(&full).unwrap();
        // The socket of a process that has ended.
        drop(UnixListener::bind(dir.path().join("4000000003.sock")).unwrap());
        let asked = ask_all(&sockets_in(dir.path()), &Request::Nids);
        assert_eq!(asked.replies, [Reply::Nids(vec![])]);
        let said: Vec<_> = asked.silent.iter().map(Silent::to_string).collect();
        let want = [4_000_000_001_u32, 4_000_000_002].map(|pid| format!("process {pid} does not answer within 300 ms"));
        assert_eq!(said, want);
        drop((control, listeners));
    }

    #[test]
    fn slow_set_gets_its_reply_and_does_not_block_other_requests() {
        let dir = tempfile::tempdir().unwrap();
        let params = Params::new();
        let control = Control::serve_in(dir.path(), &params).unwrap();
        let ((begins, begun), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
        let goes_on = Mutex::new(goes_on);
        let set = move |_: &str| {
            begins.send(()).unwrap();
            // A failing test drops the sender, which ends this wait.
            let _ = goes_on.lock().recv();
            Ok(())
        };
        params.register("llite.sheen-ff00.slow", Param::text_rw(String::new, set));
        let socket = control.path().to_path_buf();
        let slow =
            thread::spawn(move || ask(&socket, &Request::Set { pattern: "llite.*.slow".into(), value: "1".into() }));
        begun.recv_timeout(STALL).unwrap();
        let get = Request::Get { pattern: "version".into() };
        assert!(matches!(ask(control.path(), &get).unwrap(), Reply::Values(_)));
        thread::sleep(GREETING_WAIT);
        go_on.send(()).unwrap();
        let Reply::Results(results) = slow.join().unwrap().unwrap() else { panic!() };
        assert_eq!((results[0].errno, &results[0].fsnames[..]), (0, &["sheen".to_owned()][..]));
    }

    #[test]
    fn request_is_not_executed_after_its_sender_timed_out() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let set = Request::Set { pattern: "a.b".into(), value: "16".into() };
        assert!(matches!(ask(&socket, &set), Err(NoReply::Silent(waited)) if waited == GREETING_WAIT));
        let params = Params::new();
        params.register("a.b", Param::atomic(1..=100, Arc::new(AtomicU64::new(8))));
        // The process is resumed.
        let (peer, _) = listener.accept().unwrap();
        assert!(serve_one(&peer, &params).is_err());
        assert_eq!(params.get("a.b").unwrap()[0].value, "8");
    }

    #[test]
    fn request_for_one_file_system_does_not_change_others() {
        let params = Params::new();
        for name in ["osc.a-OST0000-osc-ff00.max", "osc.b-OST0000-osc-ff00.max", "lnet.delay_us"] {
            params.register(name, Param::atomic(1..=100, Arc::new(AtomicU64::new(8))));
        }
        params.add_device("a-OST0000", || Device::new("obdfilter", "a-OST0000", "a-OST0000_UUID"));
        let of =
            |fsname: &str, request| answer(&Request::Of { fsname: fsname.into(), request: Box::new(request) }, &params);
        let set = |pattern: &str| Request::Set { pattern: pattern.into(), value: "16".into() };
        let Reply::Results(results) = of("b", set("*.*.max")) else { panic!() };
        assert_eq!((results.len(), &results[0].name[..]), (1, "osc.b-OST0000-osc-ff00.max"));
        assert_eq!(params.get("osc.a-*.max").unwrap()[0].value, "8");
        // The process has two file systems, so its own parameters belong to neither.
        assert_eq!(of("b", set("lnet.delay_us")), Reply::Error { errno: 2 });
        let Reply::Results(results) = answer(&set("lnet.delay_us"), &params) else { panic!() };
        assert_eq!(results[0].fsnames, ["a", "b"]);
        assert_eq!(of("b", Request::Devices), Reply::Devices(vec![]));
        assert_eq!(of("b", Request::Nids), Reply::Nids(vec![]));
        assert_eq!(of("c", Request::Nids), Reply::Error { errno: 2 });
        let twice = Request::Of { fsname: "a".into(), request: Box::new(Request::Nids) };
        assert_eq!(of("a", twice), Reply::Error { errno: 71 });
        let text = r#"{"op":"of","fsname":"a","request":{"op":"set","pattern":"p","value":"1"}}"#;
        let want = Request::Of {
            fsname: "a".into(),
            request: Box::new(Request::Set { pattern: "p".into(), value: "1".into() }),
        };
        assert_eq!(serde_json::from_str::<Request>(text).unwrap(), want);
    }

    #[test]
    fn reply_without_a_greeting_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let old = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_line(&stream, REQUEST_BYTES_MAX).unwrap();
            stream.write_all(b"{\"nids\":[\"0@lo\"]}\n").unwrap();
        });
        assert_eq!(ask(&socket, &Request::Nids).unwrap(), Reply::Nids(vec!["0@lo".into()]));
        old.join().unwrap();
    }

    #[test]
    fn stale_sockets_are_removed_and_writable_directories_refused() {
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
