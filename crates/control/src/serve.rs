//! The server's side: the control socket of this process.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use sheen_params::{ParamError, Params, Set, fsname_of};
use sheen_wire::Errno;

use crate::listener::{Accepts, Listener};
use crate::message::{
    GREETING, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reply, Request, STALL, SetResult, read_line, write_reply,
};
use crate::page::page;
use crate::sockets::{private_dir, runtime_dir};

/// Connections that a process serves in threads of their own. The accepting thread serves a further
/// one itself; later ones wait for it.
const SERVED_AT_ONCE_MAX: usize = 16;
/// Mode of a control socket.
const MODE: u32 = 0o600;

/// The control socket of this process. It is closed and removed when this is dropped.
#[derive(Debug)]
pub struct Control(Listener);

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
        let params = params.clone();
        Listener::open(dir, MODE, move |accepts| run(&accepts, &params)).map(Control)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn run(accepts: &Accepts, params: &Params) {
    // Each connection that is being served holds another reference.
    let served = Arc::new(());
    thread::scope(|scope| {
        while let Some(stream) = accepts.accept() {
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

/// Serves one connection.
pub(crate) fn serve_one(mut stream: &UnixStream, params: &Params) -> io::Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    stream.write_all(GREETING)?;
    let reply = match serde_json::from_str(&read_line(stream, REQUEST_BYTES_MAX)?) {
        Ok(request) => answer(&request, params),
        Err(_) => Reply::Error { errno: Errno::EPROTO.0 },
    };
    write_reply(stream, &reply)
}

/// Executes a request on the parameters of this process.
pub fn answer(request: &Request, params: &Params) -> Reply {
    answer_within(request, params, REPLY_BYTES_MAX)
}

/// As [`answer`]. `max`: most bytes of a page.
pub(crate) fn answer_within(request: &Request, params: &Params, max: u64) -> Reply {
    let (request, after) = match request {
        Request::Page { after, request } => (&**request, Some(after)),
        request => (request, None),
    };
    let (request, fsname) = match request {
        Request::Of { fsname, request } => (&**request, Some(&fsname[..])),
        request => (request, None),
    };
    let reply = match after {
        Some(after) => page(request, fsname, after, params, max),
        None => whole(request, fsname, params),
    };
    reply.unwrap_or_else(|ParamError { errno, .. }| Reply::Error { errno: errno.0 })
}

/// Executes a request whose reply is not in pages.
fn whole(request: &Request, fsname: Option<&str>, params: &Params) -> Result<Reply, ParamError> {
    match request {
        Request::List { pattern } => params.list_of(pattern, fsname).map(Reply::Nodes),
        Request::Get { pattern } => params.get_of(pattern, fsname).map(Reply::Values),
        Request::GetTyped { pattern } => params.typed_of(pattern, fsname).map(Reply::Typed),
        Request::GetTypedAny { patterns } => params.typed_of_any(patterns, fsname).map(Reply::Typed),
        Request::Set { pattern, value } => params
            .set_of(pattern, value, fsname)
            .map(|results| Reply::Results(results.into_iter().map(|set| result_of(set, params)).collect())),
        Request::Devices => Ok(Reply::Devices(params.devices_of(fsname))),
        Request::Nids if fsname.is_some_and(|fsname| !params.fsnames().contains(fsname)) => Err(Errno::ENOENT.into()),
        Request::Nids => Ok(Reply::Nids(params.nids())),
        Request::Of { .. } | Request::Page { .. } => Err(Errno::EPROTO.into()),
    }
}

fn result_of(set: Set, params: &Params) -> SetResult {
    let fsnames = match fsname_of(&set.name) {
        Some(fsname) => vec![fsname.to_owned()],
        None => params.fsnames().into_iter().collect(),
    };
    let (errno, accepts) = set.result.err().map_or((0, None), |e| (e.errno.0, e.accepts));
    SetResult { name: set.name, errno, accepts, fsnames }
}
