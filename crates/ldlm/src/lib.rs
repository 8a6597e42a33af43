//! The distributed lock manager, after Lustre's LDLM: which client may cache what, and when it must
//! cancel its lock.
//!
//! * [`Namespace`]: the locks of one target, on the server. It grants locks, queues requests, sends
//!   blocking callbacks, and evicts clients that do not cancel in time.
//! * [`client::Locks`]: the locks that one client holds on the same target: which lock covers an
//!   operation, which locks are unused, which must be cancelled.
//!
//! The types in messages ([`Mode`](sheen_wire::ldlm::Mode), [`Policy`](sheen_wire::ldlm::Policy),
//! …) are defined in [`sheen_wire::ldlm`].
//!
//! This crate is an engine: events and the time come in, actions go out. It has no I/O, no clock
//! and no tasks. Invariants:
//! * no two granted locks of a resource conflict (except flock locks of one owner, which are one
//!   lock to programs);
//! * a client holds a lock from the moment it learns of the grant until it has sent the cancel. The
//!   server's state covers that whole time: it grants earlier and forgets later. So two clients
//!   never hold conflicting locks at once;
//! * no request waits for ever while the lock holders respond. A client that does not respond
//!   within the lock timeout is evicted.

pub mod client;
mod nodes;
mod server;
mod slab;

pub use server::{
    Action, BlockingLock, ClientId, Info, Level, Namespace, Overdue, SERVER, Stats, Ticket, Tunables, WaitingLock,
};
