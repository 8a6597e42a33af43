//! Requests and replies between a client and a service, in one process or over the network.
//!
//! * A [`Service`] executes the requests to a target (`sheen-OST0000`). A [`Server`] makes services
//!   reachable.
//! * An [`Import`] is a client's connection to one target. An [`Export`] is the target's state of
//!   one client. [`ExportStats`] counts the requests of the clients of each host.
//!
//! * [`SelftestService`] answers requests that only measure the network. [`SelftestConnection`] is
//!   a connection to it, over which [`send_load`] sends many. [`ToolClient`] connects a tool to any
//!   target.
//!
//! Over `lo`, if the target lives in the same process, [`ImportRequest::send`] calls the service:
//! no socket, no serialisation, no other task. If the service's future is ready at its first poll,
//! so is the call. Over `tcp` the caller's own thread writes the frame if the socket has room.
//!
//! Invariants:
//! * A request for which [`sheen_wire::Protocol::once`] is true is executed once, however often the
//!   connection breaks while the server lives ([`sheen_recovery::ReplyCache`]). No request is
//!   executed twice at the same time. No execution starts for a connection that its client has
//!   replaced.
//! * An import has at most `max_rpcs_in_flight` requests under way, besides the separately bounded
//!   urgent and patient ones. A connection has at most [`ServerConfig::requests_in_flight_max`]
//!   requests executing. The server reads no further requests beyond that, nor while a client does
//!   not read its replies.
//! * A connection, and a process, holds no more bytes of bulk than [`ServerConfig`] allows. This
//!   counts requests being executed and replies being sent. A request that a service postpones
//!   counts from its execution on ([`Service::postponed`]).
//! * An idle import has no timer, and neither has its export.

mod audit;
mod export_stats;
mod gate;
mod host_stats;
mod import;
mod line_limit;
mod selftest;
mod selftest_connection;
mod selftest_load;
mod selftest_turns;
mod server;
mod service;
mod slots;
mod slow;
mod stats;
mod target;
mod tool_client;
mod waits;

pub use export_stats::ExportStats;
pub use gate::{Gate, Pass};
pub use import::{
    Cause, ConnectError, Import, ImportConfig, ImportParams, ImportRequest, ImportState, Miss, PATIENT_IN_FLIGHT_MAX,
    Preparation, RPCS_IN_FLIGHT_LIMIT, Recovering, RequestError, RetainedBudget, RetainedChange, URGENT_BEYOND,
};
pub use selftest::SelftestService;
pub use selftest_connection::SelftestConnection;
pub use selftest_load::{echo, send_load};
pub use server::{Server, ServerConfig};
pub use service::{BoxFuture, Export, Origin, Response, Service};
pub use slots::{Slot, Slots};
pub use stats::{ImportStats, OpStats};
pub use tool_client::ToolClient;
pub use waits::{Awaited, Waiting, Waits};
