//! The control socket, through which `lctl` reaches the parameters of every process of this
//! machine.
//!
//! A process listens on `<pid>.sock` in its runtime directory. A connection carries one request and
//! one reply, each a line of JSON. Only the owner of the process and root can reach the socket: the
//! directory has mode 0700, the socket 0600. A process of root has a second socket, through which
//! all users may read public parameters and list devices (`public`).
//!
//! A separate thread blocks in `accept`. It costs nothing while idle, and answers even if the
//! runtime is stuck, which is when an administrator needs it. Each connection gets a thread, up to
//! a limit. A peer that stalls is disconnected after [`STALL`].
//!
//! A running process accepts at once; a stopped process does not. The server therefore sends a
//! greeting before it reads the request. A client that receives no greeting times out after
//! [`GREETING_TIMEOUT`]. A request that takes long in a running process has until [`STALL`]. The
//! greeting is white space before the JSON of the reply, which older clients skip. An older server
//! sends only the reply.
//!
//! A client that gets EMSGSIZE, because the values are more than [`REPLY_BYTES_MAX`], requests them
//! again in pages. Only processes of root and of the client's user may send more than that in all.
//!
//! Invariant: a process does not execute a request whose sender timed out before the greeting. When
//! the process is resumed, its greeting fails, and it does not read the request.
//!
//! * `message`: requests and replies, and how they travel;
//! * `page`: replies in pages;
//! * `listener`: a socket that a process listens on;
//! * `serve`: the server's side, [`Control`];
//! * `public`: the socket for all users, [`PublicControl`];
//! * `ask`: the client's side;
//! * `sockets`: the runtime directories and the sockets in them.

#![allow(
    clippy::disallowed_methods,
    reason = "a control socket lies outside the simulated world: no file system data passes here"
)]

mod ask;
mod listener;
mod message;
mod page;
mod public;
mod serve;
mod sockets;
#[cfg(test)]
mod tests;

pub use ask::{NoReply, Replies, Silent, ask, ask_all, ask_within};
pub use message::{GREETING_TIMEOUT, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reply, Request, STALL, SetResult};
pub use public::PublicControl;
pub use serve::{Control, answer};
pub use sockets::{DIR_ENV, is_closed, public_sockets, runtime_dir, sockets, sockets_in};
