//! The MDT as a serial, deterministic state machine: inodes, entries, permissions, layouts.
//!
//! [`Namespace`] executes one request after another against tables in memory that lie over an
//! ordered key-value [`Store`], and answers at once with a transno. What changed gathers in a
//! layer; [`Namespace::seal`] hands the layer out as one atomic [`Batch`], which the service
//! commits off the engine while further requests run, and reports with [`Namespace::committed`].
//!
//! ```text
//!   execute ──▶ active layer ──seal──▶ committing layer ──Store::commit──▶ store
//!                    reads look into: cache, active, committing, store
//! ```
//!
//! Invariants:
//!
//! * After a crash the store shows the state after some transno, whole: a batch holds whole
//!   operations, and is atomic.
//! * Every entry names an inode; an inode's `nlink` is the number of its names (directories: 2 +
//!   subdirectories), and with no names it lives exactly as long as it is open or may be reopened.
//! * Ids of objects and sequences of FIDs are never used twice, also across crashes: only ids below
//!   a bound that is durable are handed out, and a restart goes on above it (module `ids`).
//! * No I/O but the store's reads, no clock, no randomness: the caller passes the time and one
//!   random number at open.
//! * An operation reads and checks everything before it changes anything, so that a refused or
//!   failed request leaves no trace.

mod access;
mod acl;
mod cache;
mod engine;
mod format;
mod handles;
mod ids;
mod involved;
mod key;
mod nameless;
mod ops;
mod record;
mod replaced;
mod store;
mod tables;
mod touched;

pub use engine::{Ask, ClientId, Config, Destroy, Done, Env, NEED_COMMIT, Namespace};
pub use format::STORE_FORMAT;
pub use ids::OrphanRange;
pub use nameless::Nameless;
pub use ops::{Renamed, Taking};
pub use record::FORMAT_VERSION;
pub use store::{Batch, MemStore, Store, StoreError};

/// Decodes bytes as every kind of stored record and as an ACL, and forgets the result: what a fuzz
/// target calls. Any bytes are fine.
#[doc(hidden)]
pub fn fuzz_records(bytes: &[u8]) {
    let _ = record::decode::<record::Inode>(&[], bytes);
    let _ = record::decode::<record::Dentry>(&[], bytes);
    let _ = acl::Acl::decode(bytes);
}
