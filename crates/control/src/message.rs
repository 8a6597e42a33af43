//! Requests and replies: each a line of JSON.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sheen_params::{Device, Found, Node, TypedParam};
use sheen_wire::Errno;

/// Longest request, in bytes: a pattern and a value.
pub const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest reply, in bytes: some 100,000 parameters. More come in pages.
pub const REPLY_BYTES_MAX: u64 = 16 << 20;
/// Time limit for a peer to send or to take its next bytes. A change may wait for a slow disk.
pub const STALL: Duration = Duration::from_secs(30);
/// Default time limit for a process to send its greeting. Its thread waits only for a processor, so
/// this is ample on a loaded host. A user hardly notices it.
pub const GREETING_TIMEOUT: Duration = Duration::from_millis(300);
/// Sent to a peer at once, before its request is read.
pub(crate) const GREETING: &[u8] = b" ";

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
    /// Typed values that match. Processes of earlier releases refuse it (EPROTO).
    GetTyped {
        /// Shell pattern.
        pattern: String,
    },
    /// Typed values that match any of several patterns. Processes of earlier releases refuse it
    /// (EPROTO).
    GetTypedAny {
        /// Shell patterns.
        patterns: Vec<String>,
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
        /// Any request but this and `Page`.
        request: Box<Request>,
    },
    /// The values of a request in the order of their names, as many as fit in a reply. Processes of
    /// earlier releases refuse it (EPROTO).
    Page {
        /// The name that the values follow. Empty: all follow.
        after: String,
        /// `List`, `Get`, `GetTyped`, `GetTypedAny`, or `Of` with one of them.
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
    /// To `GetTyped` and `GetTypedAny`.
    Typed(Vec<TypedParam>),
    /// To `Set`.
    Results(Vec<SetResult>),
    /// To `Devices`.
    Devices(Vec<Device>),
    /// To `Nids`.
    Nids(Vec<String>),
    /// To `Page`.
    Page {
        /// Some of the values.
        reply: Box<Reply>,
        /// Whether no values follow.
        is_last: bool,
    },
    /// Nothing matched, or the request was invalid. EMSGSIZE: the reply, or a single value of a
    /// page, is longer than [`REPLY_BYTES_MAX`]. Only on a public socket: EACCES for a request that
    /// other users may not send; EBUSY if the process serves too many requests of this user, or of
    /// all users.
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

/// Reads a line of at most `max` bytes.
pub(crate) fn read_line(from: impl Read, max: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from).take(max).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Sends a message as a line of JSON.
pub(crate) fn write_line<T: Serialize>(to: impl Write, message: &T) -> io::Result<()> {
    write(to, serde_json::to_vec(message)?)
}

/// Sends a reply after the greeting.
pub(crate) fn write_reply(to: impl Write, reply: &Reply) -> io::Result<()> {
    write(to, reply_line(reply, REPLY_BYTES_MAX)?)
}

/// Returns a reply as JSON. Instead of a reply that has more than `max` bytes with its greeting, it
/// returns EMSGSIZE, because the peer would stop reading and could not tell why.
pub(crate) fn reply_line(reply: &Reply, max: u64) -> io::Result<Vec<u8>> {
    let line = serde_json::to_vec(reply)?;
    let bytes = GREETING.len() + line.len() + 1;
    if bytes as u64 > max {
        return Ok(serde_json::to_vec(&Reply::Error { errno: Errno::EMSGSIZE.0 })?);
    }
    Ok(line)
}

/// Sends a line without its end.
pub(crate) fn write(mut to: impl Write, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    to.write_all(&line)
}

/// A connection with a time limit for all of its reads and writes together.
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) end: Instant,
}

impl Timed<'_> {
    /// Returns the time that is left.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
