//! The lock manager, after Lustre's LDLM: who may cache what, and who gives it back when.
//!
//! * [`Namespace`]: the locks of one target, on the server. Grants, queues, asks locks back, evicts
//!   who does not give them back.
//! * [`client::Locks`]: the same target's locks as one client holds them: which of them covers an
//!   action, which are unused, which have to go.
//!
//! The words ([`Mode`](sheen_wire::ldlm::Mode), [`Policy`](sheen_wire::ldlm::Policy), …) travel and
//! are defined in [`sheen_wire::ldlm`].
//!
//! This crate is an engine: events and the time come in, actions go out; no I/O, no clock, no
//! tasks. What holds always:
//! * no two granted locks of a resource exclude each other (flock locks of one owner aside, which
//!   are one lock to programs);
//! * a client holds a lock from when it learns of the grant until it has said that it cancels; as
//!   the server grants later and forgets later than that, no two clients ever believe to hold locks
//!   that exclude each other;
//! * nothing waits for ever as long as those that hold locks answer: who does not within the lock
//!   timeout is evicted.

pub mod client;
mod nodes;
mod server;
mod slab;

pub use server::{Action, ClientId, Info, Level, Namespace, SERVER, Stats, Ticket, Tunables};
