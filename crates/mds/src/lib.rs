//! The metadata service: one MDT, its store, its commits, its OSTs.
//!
//! ```text
//!   rpc ──▶ service ──▶ Namespace (one lock, memory speed) ──▶ reply with transno
//!                           │      └─ locks: whoever keeps what changed forgets it first
//!                           │ dirty
//!                        commit: seal ▷ redb on a blocking thread ▷ committed ──▶ who waits for Sync
//!                           │ durable unlinks
//!                        destroy: objects of what is gone ──▶ OSTs
//!   mgs ──▶ osts: which OSTs there are, how full they are ──▶ placement
//! ```
//!
//! Invariants:
//! * A reply goes out before its change is durable; a `Sync` reply never does.
//! * A reply to a change goes out after every other client has given up what it kept of what was
//!   changed (module `locks`).
//! * Locks live in memory: a restarted MDT knows none, neither of what clients keep nor of programs
//!   (flock, fcntl).
//! * An object is destroyed only after the change that took it off its file is durable and known to
//!   all, and forgotten only after it is destroyed for good.
//! * A file's layout is another one (module `migrate`) when that is durable and the objects that it
//!   leaves are closed, to everybody.
//! * No new object is placed on an OST before the objects that a crash left on it are removed.
//! * A store that cannot be written makes the MDT read-only until it can; nothing that was answered
//!   is dropped meanwhile.
//! * A damaged store makes the MDT read-only until it ends: it neither writes to the store nor
//!   destroys objects. A directory with an identity whose store is lost is refused.
//! * Idle, nothing here runs: every task waits for an event, none polls.

mod commit;
mod config;
mod damage;
mod destroy;
mod dom;
mod env;
mod identity;
mod locks;
mod mdt;
mod migrate;
mod osp;
mod osts;
mod params;
mod service;
pub mod store;
mod swap;

pub use config::MdtConfig;
pub use dom::DataService;
pub use identity::{Identity, IdentityError};
pub use mdt::{DATA_DIR, IDENTITY, Mdt, MdtError};
pub use store::RedbStore;
