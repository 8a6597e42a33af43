//! The server's side: all locks of one target.
//!
//! A lock is granted or waiting. A request waits if it conflicts with a granted lock, or with an
//! earlier waiting request. The holders of granted locks get blocking callbacks. Flock requests
//! wait for granted locks only, as POSIX has no queue. Invariants:
//!
//! * no two granted locks of a resource conflict;
//! * every waiting lock *watches* one lock that blocks it: an earlier waiting lock or a granted
//!   one. The waiting lock is examined again when the watched one is dropped or weakened, and only
//!   then. So the cost of a release depends on the locks that it unblocks, not on all that wait;
//! * a granted extent or bits lock that conflicts with a waiting one has been sent a blocking
//!   callback;
//! * a lock that has been sent a blocking callback has a deadline. Exceptions are the server's own
//!   locks, GROUP locks, which programs hold, and locks that their clients do not know of yet.
//!
//! There is one file for each operation: [`enqueue`], [`cancel`], [`convert`], [`glimpse`], …. They
//! share `queue` (granting and blocking callbacks), `conflict` (searching) and `store` (how a lock
//! is made and dropped). Below them are `namespace`, which owns all state, `state` (locks,
//! resources and clients), `contention` and `types` (the types of the interface).

mod adaptive;
mod cancel;
mod conflict;
mod contention;
mod convert;
mod deadlines;
mod enqueue;
mod extent;
mod flock;
mod glimpse;
mod inodebits;
mod namespace;
mod overdue;
mod queue;
mod resend;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod types;
mod waits;

pub use contention::Level;
pub use namespace::Namespace;
pub use overdue::Overdue;
pub use types::{Action, ClientId, Info, SERVER, Stats, Ticket, Tunables};
pub use waits::{BlockingLock, WaitingLock};
