//! Callbacks of a target to a client, mostly about its locks: Lustre's ASTs (asynchronous system
//! traps).
//!
//! A callback goes one way. The client responds with an ordinary request: it cancels the lock. A
//! callback that was lost with a broken connection is sent again over the next one. So a callback
//! may come twice. It may also come for a lock whose grant has not arrived yet, or that is
//! cancelled already.
//!
//! A lost [`Callback::Changelog`] is not sent again.

use serde::{Deserialize, Serialize};

use crate::{
    Fid,
    ldlm::{Cookie, LockId, Mode, Policy, Resource},
};

/// A callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Callback {
    /// Another client wants the lock. The client stops using it, flushes dirty data and drops
    /// cached data under it, and cancels it.
    Blocking {
        /// The lock.
        id: LockId,
        /// The client's own handle of it.
        cookie: Cookie,
        /// Its resource.
        resource: Resource,
        /// The wanted lock: the client must release no more than this.
        wanted: (Mode, Policy),
    },
    /// A lock that had to wait is granted.
    Completion {
        /// The lock.
        id: LockId,
        /// The client's own handle of it.
        cookie: Cookie,
        /// Its resource.
        resource: Resource,
        /// Its mode.
        mode: Mode,
        /// The locked part of the resource.
        policy: Policy,
    },
    /// Asks for the object's size as the client knows it. The client answers with a request.
    Glimpse {
        /// The lock under which the client may have extended the object.
        id: LockId,
        /// The client's own handle of it.
        cookie: Cookie,
        /// The object.
        resource: Resource,
    },
    /// The changelog has new durable records. Once for a client that asked for it
    /// ([`crate::mds::Request::Changelog`]).
    Changelog,
}

/// A lock (PR on some bits of an inode) that comes with a reply, so that the client may cache the
/// reply.
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
