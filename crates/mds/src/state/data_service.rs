//! The interface to the MDT's data service.

use sheen_wire::ldlm::Cookie;
use sheen_wire::mds::InlineDom;
use sheen_wire::{Bulk, Fid};

/// The data service, for what the MDT requests on behalf of clients. Called in this process,
/// without a request.
pub trait DataService: Send + Sync {
    /// Grants the client with the uuid `client` a lock on all of an object. Returns the lock, the
    /// object's attributes, and its bytes if they are few. Never waits; `None` if the lock cannot
    /// be granted at once.
    fn inline_dom(&self, client: &str, object: Fid, cookie: Cookie) -> Option<(InlineDom, Bulk)>;
}
