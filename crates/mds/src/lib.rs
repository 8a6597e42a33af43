//! The metadata service: one MDT, its store, its commits, its OSTs.
//!
//! ```text
//!   rpc ──▶ service ──▶ Namespace (one lock, in memory) ──▶ reply with transno
//!                           │      └─ locks: clients that cache a changed inode cancel first
//!                           │ dirty
//!                        commit: seal ▷ redb on a blocking thread ▷ committed ──▶ waiting Sync
//!                           │ durable unlinks
//!                        destroy: objects of deleted files ──▶ OSTs
//!   mgs ──▶ osts: list of OSTs, free space ──▶ placement
//!   OSTs ◀─▶ quota: owners of objects, limits of space; repair: damage
//! ```
//!
//! `mdt` is the state of a running MDT; `state` has its parts. `start` starts and stops it. `dir`
//! is its directory on disk. The other modules are operations and tasks.
//!
//! Invariants:
//! * The MDT replies to a change before the change is durable. The exceptions are `Sync`,
//!   migration, layout swap and changes of a file's mirrors.
//! * The MDT replies to a change after all other clients have cancelled their locks on the changed
//!   inodes (module `locks`).
//! * After a crash the MDT executes new requests only when its clients have replayed the changes
//!   that were answered and not committed (module `recovery`).
//! * Locks live in memory only. A restarted MDT does not know the locks of client caches. Clients
//!   take the locks of programs (flock, fcntl) again before the MDT grants others.
//! * An object is destroyed only after the change that removed it from its file is durable and
//!   known to all clients. Its entry leaves the unlink log only after the object is destroyed
//!   durably.
//! * Migration and layout swap (module `migrate`): clients see the new layout only when it is
//!   durable and the old objects are sealed.
//! * No new object is placed on an OST before the orphan objects that a crash left there are
//!   removed.
//! * If the disk is full, new files fail with ENOSPC. A reserve lets removals go on.
//! * If the store cannot be written, the MDT is read-only until a write succeeds. It drops no
//!   change that it has replied to.
//! * If the store is damaged, the MDT is read-only until it stops. It neither writes to the store
//!   nor destroys objects. The MDT refuses a directory that has an identity but has lost its store.
//! * An idle MDT with connected OSTs uses no CPU: every task waits for an event, none polls.

mod changelog;
mod commit;
mod config;
mod damage;
mod destroy;
mod dir;
mod dom;
mod env;
mod error;
mod fence;
mod identity;
mod jobs;
mod lfsck;
mod limits;
mod locks;
mod lost_objects;
mod mdt;
mod migrate;
mod mirror_repair;
mod mirror_source;
mod offline;
mod osp;
mod osts;
mod params;
mod quota;
mod recovery;
mod repairs;
mod service;
mod space;
mod start;
mod state;
pub mod store;
mod swap;
mod users;

pub use config::MdtConfig;
pub use dir::{DATA_DIR, IDENTITY};
pub use error::MdtError;
pub use identity::{Identity, IdentityError};
pub use mdt::Mdt;
pub use offline::OfflineMdt;
pub use sheen_namespace::{Check, Problem};
pub use state::data_service::DataService;
pub use store::RedbStore;
