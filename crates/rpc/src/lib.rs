//! Requests and replies between a client and a service, wherever the two live.
//!
//! * A [`Service`] is what stands behind a target (`sheen-OST0000`); a [`Server`] makes services
//!   reachable.
//! * An [`Import`] is a client's end of the way to one target, an [`Export`] the target's end of
//!   the way to one client.
//!
//! Over `lo`, where the target lives in the same process, [`Import::call`] calls the service: no
//! socket, no serialisation, no other task; if the service's future is ready at its first poll, so
//! is the call. Over `tcp` the caller's own thread writes the frame if the socket has room.
//!
//! Invariants:
//! * A request for which [`sheen_wire::Protocol::once`] says so is executed once, however often the
//!   connection breaks while the server lives ([`sheen_recovery::ReplyCache`]). Of any request no
//!   two executions run at a time, and none starts for a connection that its client has replaced.
//! * An import has at most `max_rpcs_in_flight` requests under way, a connection at most
//!   [`ServerConfig::requests_in_flight_max`] executing; a server reads no further than that, nor
//!   while a client does not fetch its replies.
//! * A connection, and a process, holds no more bytes of bulk (of requests being executed and
//!   replies being sent) than [`ServerConfig`] says.
//! * Where nothing is asked nothing runs: an idle import has no timer, and neither has its export.

mod gate;
mod import;
mod server;
mod service;
mod slots;
mod stats;
mod target;

pub use gate::{Gate, Pass};
pub use import::{
    ConnectError, Import, ImportConfig, ImportParams, ImportState, PATIENT_IN_FLIGHT_MAX, RPCS_IN_FLIGHT_LIMIT,
    Recovering, URGENT_IN_FLIGHT_MAX,
};
pub use server::{Server, ServerConfig};
pub use service::{BoxFuture, Export, Response, Service};
pub use slots::{Slot, Slots};
pub use stats::{ImportStats, OpStats};
