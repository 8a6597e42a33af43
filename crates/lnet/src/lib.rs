//! Networks: how frames get from one process to another.
//!
//! * [`nid`]: the names of places, `0@lo` and `10.0.0.1:7988@tcp`, and of mount sources;
//! * [`net`]: [`Net`], what a process has of the network: the services that live in it, its
//!   addresses, connections, faults to inject;
//! * [`sender`] and [`receiver`]: the two directions of a tcp connection that carries
//!   [`sheen_wire::frame`]s.
//!
//! This crate moves frames and knows nothing of requests; `rpc` knows requests and nothing of
//! sockets. Over `lo` there is nothing to move: the registry hands out the service, and the caller
//! calls it.
//!
//! Invariants:
//! * Frames of a connection arrive whole, checked, and in the order in which they were posted, or
//!   the connection ends.
//! * Nothing that a peer sends makes this process panic, or hold more than one frame per connection
//!   beyond what was handed to the caller.
//! * A connection on which nothing happens costs no processor time: no timer runs, nothing polls.

pub mod fault;
pub mod frame;
pub mod net;
pub mod nid;
pub mod receiver;
pub mod sender;

pub use fault::Fault;
pub use frame::{Frame, Live, Source, Stretch};
pub use net::{Acceptor, Connection, Limits, Local, Net};
pub use nid::{DEFAULT_PORT, Nid, NidError, NidName, check_fsname, parse_source};
pub use receiver::{Receiver, RecvError};
pub use sender::Sender;
