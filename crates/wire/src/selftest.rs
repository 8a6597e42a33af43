//! The self-test of the network: requests that a server answers without doing anything else
//! (Lustre's LNET selftest).

use serde::{Deserialize, Serialize};

/// Name of the service. Each process that listens has one.
pub const TARGET: &str = "selftest";

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Drops the bulk of the request. Answers with a bulk of this many bytes, at most
    /// [`crate::bulk::BULK_BYTES_MAX`].
    Echo {
        /// Bytes of the reply's bulk.
        reply_bytes: u32,
    },
}

impl Request {
    /// Returns the name for statistics and logs.
    pub fn op(&self) -> &'static str {
        match self {
            Request::Echo { .. } => "echo",
        }
    }
}

/// A successful reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To `Echo`; the bulk has the bytes.
    Echoed,
}
