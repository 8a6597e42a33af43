//! Engines for broken connections and crashes: the knowledge that a server has of its clients.
//!
//! [`ReplyCache`] is for exactly-once execution. A client that lost its connection resends every
//! request without a reply. The server must not execute such a request a second time. Nor may it
//! execute a copy that arrives late on the old connection, after the resent one. For each request
//! that arrives, the cache decides whether it is to be executed, is being executed, or has been
//! answered already.
//!
//! After a crash, clients replay changes that were answered and not committed. [`Window`] brings
//! the changes of all clients into their order, and knows when the recovery ends.
//!
//! This crate is an engine: no I/O, no clock, no tasks.

mod reply_cache;
mod window;

pub use reply_cache::{Begin, CLIENTS_MAX, REPLIES_PER_CLIENT_MAX, ReplyCache};
pub use window::{Counts, NotAwaited, Stage, Window};
