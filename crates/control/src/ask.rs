//! The client's side: requests to processes.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sheen_wire::Errno;

use crate::message::{REPLY_BYTES_MAX, Reply, Request, STALL, Timed, read_line, write_line};
use crate::page::{has_pages, joined, last_name};
use crate::sockets::connect;

/// Number of parts of the time limit for the greeting. If the whole machine pauses, as a virtual
/// machine may, only one part is used up. The process still has the others.
const GREETING_TIMEOUT_PARTS: u32 = 3;
/// How often a request is repeated that a public socket refuses because it is busy, and the pause
/// before. The socket serves a request in milliseconds.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Pages of a reply, at most: 1 GiB of values.
const PAGES_MAX: u32 = 64;
/// Time for all pages of a reply, at most.
const ASK_TIME_MAX: Duration = Duration::from_secs(60);
/// Processes that are queried at once. If there are more, they are queried in groups.
const ASKED_AT_ONCE_MAX: usize = 64;

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
    /// Number of processes that this user may not query, because they belong to another user.
    pub denied: usize,
}

/// Queries the processes behind several sockets at once: all together take as long as the slowest
/// one. Skips processes that have ended or belong to another user. `greeting`: time limit for the
/// greeting of a process.
pub fn ask_all(sockets: &[PathBuf], request: &Request, greeting: Duration) -> Replies {
    let mut all = Replies::default();
    for sockets in sockets.chunks(ASKED_AT_ONCE_MAX) {
        for (socket, reply) in sockets.iter().zip(ask_together(sockets, request, greeting)) {
            match reply {
                Ok(reply) => all.replies.push(reply),
                Err(NoReply::Silent(waited)) => all.silent.push(Silent { socket: socket.clone(), waited }),
                Err(NoReply::Failed(e)) => all.denied += usize::from(e.kind() == io::ErrorKind::PermissionDenied),
            }
        }
    }
    all
}

/// Queries each socket in a thread of its own.
fn ask_together(sockets: &[PathBuf], request: &Request, greeting: Duration) -> Vec<Result<Reply, NoReply>> {
    if let [socket] = sockets {
        return vec![ask(socket, request, greeting)];
    }
    thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .map(|socket| thread::Builder::new().spawn_scoped(scope, move || ask(socket, request, greeting)))
            .collect();
        let replies = threads.into_iter().zip(sockets).map(|(thread, socket)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Other).into())),
            // No thread could be started: query this socket from here.
            Err(_) => ask(socket, request, greeting),
        });
        replies.collect()
    })
}

/// Sends a request to the process behind a socket. Returns its reply. If the values do not fit in
/// one reply, requests them in pages. `greeting`: time limit for its greeting to each request.
/// Repeats a request for about a second while a public socket is busy.
///
/// Any user can place a socket where root looks for some. So pages of a process that belongs
/// neither to root nor to this user have [`REPLY_BYTES_MAX`] bytes together.
///
/// # Errors
/// [`NoReply`].
pub fn ask(socket: &Path, request: &Request, greeting: Duration) -> Result<Reply, NoReply> {
    ask_within(socket, request, greeting, ASK_TIME_MAX)
}

/// As [`ask`]. All replies together must arrive within `limit`, and each within [`STALL`].
///
/// # Errors
/// [`NoReply`].
pub fn ask_within(socket: &Path, request: &Request, greeting: Duration, limit: Duration) -> Result<Reply, NoReply> {
    let peer = Peer { socket, greeting, limit, end: Instant::now() + limit };
    match peer.ask_while_busy(request)?.reply {
        Reply::Error { errno } if errno == Errno::EMSGSIZE.0 && has_pages(request) => peer.ask_pages(request),
        reply => Ok(reply),
    }
}

/// The process behind a socket, and the time limits of a request to it.
struct Peer<'a> {
    socket: &'a Path,
    greeting: Duration,
    /// Time for all replies together.
    limit: Duration,
    end: Instant,
}

/// A reply as it came.
struct Received {
    reply: Reply,
    /// Bytes of its JSON.
    bytes: u64,
    /// It is from a process of root or of this user.
    is_trusted: bool,
}

impl Peer<'_> {
    /// Requests all pages of a reply. EMSGSIZE: a single value is too long, the pages are too many
    /// or too long, or the process does not send them.
    fn ask_pages(&self, request: &Request) -> Result<Reply, NoReply> {
        let (mut all, mut after, mut bytes) = (None, String::new(), 0);
        for _ in 0..PAGES_MAX {
            let page = Request::Page { after: after.clone(), request: Box::new(request.clone()) };
            let received = self.ask_while_busy(&page)?;
            bytes += received.bytes;
            if bytes > REPLY_BYTES_MAX && !received.is_trusted {
                return Ok(too_long());
            }
            let (reply, is_last) = match received.reply {
                Reply::Page { reply, is_last } => (*reply, is_last),
                // All that matched has been unregistered meanwhile.
                Reply::Error { errno } if errno == Errno::ENOENT.0 => return Ok(all.unwrap_or_else(too_long)),
                _ => return Ok(too_long()),
            };
            let last = last_name(&reply).map(str::to_owned);
            let so_far = joined(all, reply);
            match last {
                _ if is_last => return Ok(so_far),
                Some(last) if last > after => after = last,
                // The process does not go on.
                _ => return Ok(too_long()),
            }
            all = Some(so_far);
        }
        Ok(too_long())
    }

    fn ask_while_busy(&self, request: &Request) -> Result<Received, NoReply> {
        let busy = Reply::Error { errno: Errno::EBUSY.0 };
        for _ in 0..BUSY_RETRIES {
            match self.ask_once(request)? {
                received if received.reply == busy => thread::sleep(BUSY_PAUSE),
                received => return Ok(received),
            }
        }
        self.ask_once(request)
    }

    fn ask_once(&self, request: &Request) -> Result<Received, NoReply> {
        let (stream, first) = begin(self.socket, request, self.greeting).map_err(|e| after(self.greeting, e))?;
        let stalled = Instant::now() + STALL;
        let waited = if self.end < stalled { self.limit } else { STALL };
        finish(&stream, first, self.end.min(stalled)).map_err(|e| after(waited, e))
    }
}

fn too_long() -> Reply {
    Reply::Error { errno: Errno::EMSGSIZE.0 }
}

/// Whether the process that listens belongs to root or to this user.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

fn after(waited: Duration, error: io::Error) -> NoReply {
    if is_timeout(&error) { NoReply::Silent(waited) } else { NoReply::Failed(error) }
}

/// Sends the request and waits for the first byte: the greeting, or an older server's reply.
fn begin(socket: &Path, request: &Request, greeting: Duration) -> io::Result<(UnixStream, [u8; 1])> {
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(greeting / GREETING_TIMEOUT_PARTS))?;
    stream.set_write_timeout(Some(greeting))?;
    match write_line(&stream, request) {
        // A busy public socket replies and closes before it gets the request.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    let mut first = [0];
    for _ in 1..GREETING_TIMEOUT_PARTS {
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

/// Reads the rest of a reply, until `end`.
fn finish(stream: &UnixStream, first: [u8; 1], end: Instant) -> io::Result<Received> {
    let line = read_line((&first[..]).chain(Timed { stream, end }), REPLY_BYTES_MAX)?;
    let (bytes, is_trusted) = (line.len() as u64, is_trusted(stream));
    Ok(Received { reply: serde_json::from_str(&line)?, bytes, is_trusted })
}
