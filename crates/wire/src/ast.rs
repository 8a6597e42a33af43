//! What a target tells a client of its locks, unasked: Lustre's ASTs (asynchronous system traps).
//!
//! A callback goes one way. What the client has to say to it is a request like others: it cancels
//! the lock. A callback that a broken connection swallowed is sent again over the next one, so one
//! may come twice, and one may come for a lock whose grant has not arrived yet, or that is
//! cancelled already.

use serde::{Deserialize, Serialize};

use crate::{
    Fid,
    ldlm::{Cookie, LockId, Mode, Policy, Resource},
};

/// A callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Callback {
    /// Somebody wants the lock. The client stops using it, writes back and forgets what it keeps
    /// under it, and cancels it.
    Blocking {
        /// The lock.
        id: LockId,
        /// The client's own handle of it.
        cookie: Cookie,
        /// What it is on.
        resource: Resource,
        /// What is wanted: of no more than this the client has to let go.
        wanted: (Mode, Policy),
    },
    /// A lock that was waited for is there.
    Completion {
        /// The lock.
        id: LockId,
        /// The client's own handle of it.
        cookie: Cookie,
        /// What it is on.
        resource: Resource,
        /// How strong it is.
        mode: Mode,
        /// What of the resource it is on.
        policy: Policy,
    },
    /// How large does the client believe the object to be? It answers with a request.
    Glimpse {
        /// The lock under which it may have made it larger.
        id: LockId,
        /// The client's own handle of it.
        cookie: Cookie,
        /// The object.
        resource: Resource,
    },
}

/// A lock (PR on some bits of an inode) that came with an answer, so that what the answer says may
/// be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The lock.
    pub id: LockId,
    /// The client's own handle of it.
    pub cookie: Cookie,
    /// The inode.
    pub fid: Fid,
    /// Its bits ([`crate::ldlm::bits`]).
    pub bits: u64,
}
