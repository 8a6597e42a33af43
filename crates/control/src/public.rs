//! The public socket of a process, through which all users of the machine list its devices, and
//! list and read public parameters.
//!
//! Control sockets are in a directory that only their user can enter. A process of root therefore
//! listens on a second socket, in a directory that all users can enter and only root can change. A
//! process of another user does so if that directory exists and belongs to the user.
//!
//! Invariants:
//! * A public socket changes nothing, and shows no other than the public parameters
//!   ([`Params::public_view`]) and the devices. It lists no NIDs.
//! * Users cannot delay the control socket: the public one has threads of its own.
//! * A user occupies at most [`OF_USER_MAX`] of [`SERVED_MAX`] connections. Others are refused with
//!   EBUSY at once. A user with several uids (subordinate ones) can occupy more.
//! * A connection ends after [`PEER_TIMEOUT`] for the request, and as much for the reply, however
//!   slowly its peer sends and reads.
//! * One request is executed at a time. So the requests of all users take at most one processor,
//!   and the memory for one reply, and for [`SERVED_MAX`] replies of at most [`REPLY_BYTES_MAX`].

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheen_params::Params;
use sheen_wire::Errno;

use crate::listener::{Accepts, Listener};
use crate::message::{GREETING, Reply, Request, Timed, read_line, reply_line, write};
use crate::serve::answer_within;
use crate::sockets::{is_own, make_public_dir, public_dir};

/// Connections of one user that are served at once.
pub(crate) const OF_USER_MAX: usize = 4;
/// Connections of all users that are served at once.
pub(crate) const SERVED_MAX: usize = 16;
/// Time limit for a peer to send its request, and to read the reply.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request, in bytes: a pattern.
pub(crate) const REQUEST_BYTES_MAX: u64 = 512;
/// Longest reply, in bytes: some 25,000 parameters.
const REPLY_BYTES_MAX: u64 = 4 << 20;
/// Mode of a public socket: all users may connect.
const MODE: u32 = 0o666;

/// The public socket of this process. It is closed and removed when this is dropped.
#[derive(Debug)]
pub struct PublicControl(Listener);

impl PublicControl {
    /// Serves the public ones of `params` to all users, if this is a process of root, or of a user
    /// to whom the directory of public sockets belongs. `None`: it is another process.
    ///
    /// # Errors
    /// The directory cannot be made, belongs to another user or can be changed by one; the socket
    /// cannot be bound.
    pub fn serve(params: &Params) -> io::Result<Option<PublicControl>> {
        match public_dir() {
            Some(dir) if rustix::process::geteuid().is_root() || is_own(&dir) => {
                PublicControl::serve_in(&dir, params).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Serves the public ones of `params` in `dir`, which is made with mode 0755 if missing.
    ///
    /// # Errors
    /// As [`PublicControl::serve`].
    pub(crate) fn serve_in(dir: &Path, params: &Params) -> io::Result<PublicControl> {
        make_public_dir(dir)?;
        let service = Arc::new(Service { params: params.public_view(), ..Service::default() });
        Listener::open(dir, MODE, move |accepts| run(&accepts, &service)).map(PublicControl)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[derive(Default)]
struct Service {
    params: Params,
    /// Held while a request is executed.
    turn: Mutex<()>,
    /// The number of connections that are served, by uid.
    served: Mutex<BTreeMap<u32, usize>>,
}

/// A connection that counts as served until this is dropped.
struct Place {
    service: Arc<Service>,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut served = self.service.served.lock();
        match served.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                served.remove(&self.uid);
            }
        }
    }
}

/// Returns a place for a connection of a user, unless there are too many.
fn admit(service: &Arc<Service>, uid: u32) -> Option<Place> {
    let mut served = service.served.lock();
    let of_user = served.get(&uid).copied().unwrap_or(0);
    if of_user >= OF_USER_MAX || served.values().sum::<usize>() >= SERVED_MAX {
        return None;
    }
    served.insert(uid, of_user + 1);
    Some(Place { service: service.clone(), uid })
}

/// Never waits for a peer, so that it always accepts the next connection soon.
fn run(accepts: &Accepts, service: &Arc<Service>) {
    while let Some(stream) = accepts.accept() {
        // The kernel knows who has connected.
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else { continue };
        match admit(service, peer.uid.as_raw()) {
            Some(place) => {
                let serve = move || {
                    let place = place;
                    // An error concerns only the peer.
                    let _ = serve_one(&stream, &place.service);
                };
                // If no thread can be started, the peer finds its connection closed.
                let _ = thread::Builder::new().name("control-public".into()).spawn(serve);
            }
            None => {
                let _ = refuse(&stream);
            }
        }
    }
}

/// Replies EBUSY at once: the buffer of a new socket has space for it.
fn refuse(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let line = serde_json::to_vec(&Reply::Error { errno: Errno::EBUSY.0 })?;
    stream.write_all(&[GREETING, &line, b"\n"].concat())
}

/// Serves one connection.
fn serve_one(stream: &UnixStream, service: &Service) -> io::Result<()> {
    let mut peer = timed(stream);
    peer.write_all(GREETING)?;
    let request = read_line(&mut peer, REQUEST_BYTES_MAX)?;
    let line = {
        let _turn = service.turn.lock();
        let reply = match serde_json::from_str(&request) {
            Ok(request) => answer_public(&request, &service.params),
            Err(_) => Reply::Error { errno: Errno::EPROTO.0 },
        };
        reply_line(&reply, REPLY_BYTES_MAX)?
    };
    write(timed(stream), line)
}

/// Executes a request of any user. `params`: their public view.
fn answer_public(request: &Request, params: &Params) -> Reply {
    match innermost(request) {
        // The view refuses to set, with a result for each parameter.
        Request::List { .. }
        | Request::Get { .. }
        | Request::GetTyped { .. }
        | Request::Set { .. }
        | Request::Devices => answer_within(request, params, REPLY_BYTES_MAX),
        // Many patterns take much time to match.
        Request::GetTypedAny { .. } | Request::Nids | Request::Of { .. } | Request::Page { .. } => {
            Reply::Error { errno: Errno::EACCES.0 }
        }
    }
}

/// Returns the request that `Page` and `Of` restrict. It is one of them if they are in another
/// order.
fn innermost(request: &Request) -> &Request {
    let request: &Request = if let Request::Page { request, .. } = request { request } else { request };
    if let Request::Of { request, .. } = request { request } else { request }
}

/// Limits the time for a request, or for a reply.
fn timed(stream: &UnixStream) -> Timed<'_> {
    Timed { stream, end: Instant::now() + PEER_TIMEOUT }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use sheen_params::{Device, Param};

    use super::*;
    use crate::ask::{NoReply, ask};
    use crate::serve::Control;
    use crate::sockets::{public_sockets_in, sockets_in};

    /// Time limit for greetings.
    const LIMIT: Duration = Duration::from_secs(60);

    fn params() -> (Params, Arc<AtomicU64>) {
        let (params, value) = (Params::new(), Arc::new(AtomicU64::new(8)));
        params.register("osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight", Param::atomic(1..=100, value.clone()));
        params.register("mdt.sheen-MDT0000.job_stats", Param::text(|| "secret".into()));
        params.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
        (params, value)
    }

    fn get(pattern: &str) -> Request {
        Request::Get { pattern: pattern.into() }
    }

    #[test]
    fn public_socket_reads_public_parameters_and_refuses_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("run-public");
        let (params, value) = params();
        let public = PublicControl::serve_in(&dir, &params).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&dir), mode(public.path())), (0o755, 0o666));
        let asked = |request: &Request| ask(public.path(), request, LIMIT).unwrap();
        let of = |request: Request| Request::Of { fsname: "sheen".into(), request: Box::new(request) };
        let error = |errno: Errno| Reply::Error { errno: errno.0 };
        for request in [get("osc.*.*"), of(get("osc.*.*"))] {
            assert!(matches!(asked(&request), Reply::Values(found) if found.len() == 1 && found[0].value == "8"));
        }
        let pattern = || "*.*.*".to_owned();
        assert!(matches!(asked(&Request::List { pattern: pattern() }), Reply::Nodes(found) if found.len() == 1));
        assert!(matches!(asked(&Request::GetTyped { pattern: pattern() }), Reply::Typed(found) if found.len() == 1));
        let set = |pattern: &str| Request::Set { pattern: pattern.into(), value: "16".into() };
        for request in [set("osc.*.*"), of(set("osc.*.*"))] {
            let Reply::Results(results) = asked(&request) else { panic!() };
            assert_eq!((results.len(), results[0].errno), (1, Errno::EACCES.0));
        }
        assert_eq!(value.load(Relaxed), 8);
        for hidden in [get("mdt.*.*"), set("mdt.*.*"), get("nosuch"), of(get("nosuch"))] {
            assert_eq!(asked(&hidden), error(Errno::ENOENT));
        }
        assert_eq!(asked(&Request::Devices), Reply::Devices(params.devices()));
        assert!(matches!(asked(&of(Request::Devices)), Reply::Devices(_)));
        let many = || Request::GetTypedAny { patterns: vec![pattern()] };
        let page = |request: Request| Request::Page { after: String::new(), request: Box::new(request) };
        for request in [page(get("osc.*.*")), page(of(get("osc.*.*")))] {
            let Reply::Page { reply, is_last: true } = asked(&request) else { panic!("{request:?}") };
            assert!(matches!(*reply, Reply::Values(found) if found.len() == 1));
        }
        assert_eq!(asked(&page(set("osc.*.*"))), error(Errno::EPROTO));
        assert_eq!(value.load(Relaxed), 8);
        for refused in
            [Request::Nids, many(), of(Request::Nids), of(of(get("version"))), page(many()), of(page(get("version")))]
        {
            assert_eq!(asked(&refused), error(Errno::EACCES), "{refused:?}");
        }
        let long = get(&"x".repeat(REQUEST_BYTES_MAX as usize));
        assert!(matches!(ask(public.path(), &long, LIMIT), Err(NoReply::Failed(_))));
        let socket = public.path().to_owned();
        drop(public);
        assert!(!socket.exists());
    }

    #[test]
    fn too_many_connections_of_a_user_are_refused_and_the_control_socket_answers() {
        let (dir, (params, _)) = (tempfile::tempdir().unwrap(), params());
        let public = PublicControl::serve_in(&dir.path().join("run-public"), &params).unwrap();
        let control = Control::serve_in(&dir.path().join("run"), &params).unwrap();
        let connect = || {
            let stream = UnixStream::connect(public.path()).unwrap();
            let mut greeting = [0; GREETING.len()];
            (&stream).read_exact(&mut greeting).unwrap();
            stream
        };
        let idle: Vec<UnixStream> = (0..OF_USER_MAX).map(|_| connect()).collect();
        let busy = Reply::Error { errno: Errno::EBUSY.0 };
        assert_eq!(read_line(&connect(), 1000).unwrap(), format!("{}\n", serde_json::to_string(&busy).unwrap()));
        assert_eq!(ask(public.path(), &get("version"), LIMIT).unwrap(), busy);
        assert!(matches!(ask(control.path(), &get("version"), LIMIT).unwrap(), Reply::Values(_)));
        drop(idle);
        while ask(public.path(), &get("version"), LIMIT).unwrap() == busy {}
    }

    #[test]
    fn places_are_limited_by_user_and_in_total() {
        let service = Arc::new(Service::default());
        let take = |uid, count| (0..count).map_while(|_| admit(&service, uid)).collect::<Vec<_>>();
        let first = take(1, OF_USER_MAX + 1);
        assert_eq!(first.len(), OF_USER_MAX);
        let others: Vec<_> = (2..100).flat_map(|uid| take(uid, OF_USER_MAX)).collect();
        assert_eq!(first.len() + others.len(), SERVED_MAX);
        drop(first);
        assert_eq!(take(100, SERVED_MAX).len(), OF_USER_MAX);
        drop(others);
        assert!(service.served.lock().is_empty());
    }

    #[test]
    fn time_limit_covers_all_reads_and_writes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(b"slow").unwrap();
        let mut byte = [0];
        timed(&ours).read_exact(&mut byte).unwrap();
        let mut late = Timed { stream: &ours, end: Instant::now() };
        assert_eq!(late.read(&mut byte).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(late.write(b"x").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn directory_that_others_can_change_is_neither_served_nor_trusted() {
        let (dir, params) = (tempfile::tempdir().unwrap(), Params::new());
        let (public, private) = (dir.path().join("run-public"), dir.path().join("run"));
        let socket = PublicControl::serve_in(&public, &params).unwrap();
        assert_eq!(public_sockets_in(&public, &private), [socket.path()]);
        // A reachable control socket is used instead.
        let control = Control::serve_in(&private, &params).unwrap();
        assert_eq!(control.path().file_name(), socket.path().file_name());
        assert!(public_sockets_in(&public, &private).is_empty());
        drop(control);
        fs::set_permissions(&public, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(sockets_in(&public).len(), 1);
        assert!(public_sockets_in(&public, &private).is_empty());
        let error = PublicControl::serve_in(&public, &params).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let link = dir.path().join("link-public");
        std::os::unix::fs::symlink(&private, &link).unwrap();
        assert!(PublicControl::serve_in(&link, &params).is_err());
    }
}
