//! Exactly-once execution: what a server remembers about the requests of its clients.
//!
//! A client that lost its connection sends every unanswered request again. The server must neither
//! execute such a request a second time nor let a copy that still hangs in an old connection take
//! effect after its successor. [`ReplyCache`] decides, for each request that arrives, whether it is
//! to be executed, is being executed, or has been answered already.
//!
//! This crate is an engine: no I/O, no clock, no tasks.

mod reply_cache;

pub use reply_cache::{Begin, CLIENTS_MAX, REPLIES_PER_CLIENT_MAX, ReplyCache};
