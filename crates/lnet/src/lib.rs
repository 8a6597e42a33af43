//! Networks: transport of frames from one process to another.
//!
//! * [`nid`]: the addresses of processes, `0@lo` and `10.0.0.1:7988@tcp`, and mount sources;
//! * [`net`]: [`Net`], a process's view of the network: the services that run in it, its addresses,
//!   its connections, faults to inject;
//! * `handshake`: authentication of the two ends of a tcp connection, and [`auth_error`], why it
//!   failed; [`application`]: keys for clients that have none;
//! * `seal`: the protection of frames afterwards, and `protection`: how much of it is demanded;
//! * [`audit`]: refusals and issued keys, for the audit trail of a server;
//! * [`sender`] and [`receiver`]: the two directions of a tcp connection that carries
//!   [`sheen_wire::frame`]s.
//!
//! This crate moves frames and knows nothing of requests; `rpc` knows requests and nothing of
//! sockets. Over `lo` no frame moves: the registry returns the service, and the caller calls it.
//!
//! Invariants:
//! * Frames of a connection arrive whole, checked, and in the order in which they were posted.
//!   Otherwise the connection ends.
//! * No data from a peer makes this process panic. A connection holds at most one frame besides
//!   those that the caller got.
//! * An idle connection uses no CPU: it has no timer and is not polled.

mod accepted;
pub mod application;
pub mod audit;
pub mod auth_error;
mod auth_message;
pub mod fault;
pub mod frame;
mod handshake;
pub mod net;
pub mod nid;
mod noise;
mod protection;
pub mod receiver;
mod seal;
pub mod sender;

pub use application::{Applying, Issuing};
pub use audit::{Audit, Denied, Event};
pub use auth_error::{AuthError, Stranger};
pub use fault::Fault;
pub use frame::{Frame, Live, Source, Stretch};
pub use net::{Acceptor, Connection, Keys, Limits, Local, Net, Trust};
pub use nid::{DEFAULT_PORT, Nid, NidError, NidName, Source as MountSource, check_fsname, parse_source, split_nids};
pub use receiver::{Receiver, RecvError};
pub use sender::Sender;
pub use sheen_keys::Signer;
