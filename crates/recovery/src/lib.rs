//! Exactly-once execution: what a server stores about its clients' requests.
//!
//! A client that lost its connection resends every request without a reply. The server must not
//! execute such a request a second time. Nor may it execute a copy that arrives late on the old
//! connection, after the resent one. For each request that arrives, [`ReplyCache`] decides whether
//! it is to be executed, is being executed, or has been answered already.
//!
//! This crate is an engine: no I/O, no clock, no tasks.

mod reply_cache;

pub use reply_cache::{Begin, CLIENTS_MAX, REPLIES_PER_CLIENT_MAX, ReplyCache};
