//! The MDT as a serial, deterministic state machine: inodes, entries, permissions, layouts.
//!
//! [`Namespace`] executes requests one after another against in-memory tables over an ordered
//! key-value [`Store`]. It replies at once with a transno. Changes collect in a layer.
//! [`Namespace::seal`] returns the layer as one atomic [`Batch`]. The service commits the batch
//! outside the engine while further requests run, and then calls [`Namespace::committed`].
//!
//! ```text
//!   execute ──▶ active layer ──seal──▶ committing layer ──Store::commit──▶ store
//!                    reads try in order: cache, active, committing, store
//! ```
//!
//! Invariants:
//!
//! * After a crash the store holds the state after some transno: batches are atomic and contain
//!   whole operations.
//! * Every directory entry names an existing inode. An inode's `nlink` is the number of its names
//!   (directories: 2 + subdirectories). An inode without names lives as long as it is open or may
//!   be reopened.
//! * Object ids and FID sequences are never used twice, also across crashes. Only ids below a
//!   durable bound are handed out, and a restart continues above that bound (module `ids`).
//! * No I/O except reads of the store, no clock, no randomness. The caller passes the time
//!   ([`Env::now`]), and one random number at open.
//! * An operation reads and checks everything before it changes anything. A refused or failed
//!   request therefore changes nothing.

mod access;
mod acl;
mod cache;
mod changelog;
mod changelog_gc;
mod clients;
mod config;
mod decided;
mod engine;
mod error;
mod executed;
mod format;
mod fsck;
mod handles;
mod held;
mod ids;
mod interface;
mod invalidations;
mod involved;
mod key;
mod layer;
mod lost_found;
mod namespace;
mod ops;
mod orphans;
mod owner_log;
mod pool_quotas;
mod quota_reports;
mod quotas;
mod record;
mod recording;
mod recovering;
mod refused_opens;
mod relayouts;
mod replaced;
mod replay;
mod replies;
mod store;
mod table_scan;
mod tables;
mod watch;

pub use access::{EXEC, READ, WRITE};
pub use acl::map_ids as map_acl_ids;
pub use changelog::{ChangelogUser, Laggard, UnneededChunks, UnneededRecords, read_changelog};
pub use changelog_gc::ChangelogGc;
pub use config::Config;
pub use decided::Decided;
pub use error::{OpError, StoreError};
pub use format::STORE_FORMAT;
pub use fsck::{Check, CountBudget, DamagedStore, EntryAt, Expected, Place, Problem, salvage};
pub use handles::ClientId;
pub use held::HeldOrphan;
pub use ids::OrphanRange;
pub use interface::{Destroy, Done, Env, LayoutRequest, Permitted};
pub use layer::Batch;
pub use namespace::Namespace;
pub use ops::{Reach, Taking};
pub use owner_log::Charged;
pub use record::FORMAT_VERSION;
pub use relayouts::Renamed;
pub use replies::Origin;
pub use store::{MemStore, Records, Store};

/// Decodes bytes as every kind of stored record and as an ACL, and discards the result. Called by a
/// fuzz target; accepts any bytes.
#[doc(hidden)]
pub fn fuzz_records(bytes: &[u8]) {
    let _ = record::decode::<record::Inode>(&[], bytes);
    let _ = record::decode::<record::Dentry>(&[], bytes);
    let _ = record::decode::<changelog::State>(&[], bytes);
    let _ = record::decode::<ChangelogGc>(&[], bytes);
    let _ = record::decode::<quotas::IdRecord>(&[], bytes);
    let _ = record::decode::<quotas::KindRecord>(&[], bytes);
    let _ = record::decode::<pool_quotas::PoolIdRecord>(&[], bytes);
    let _ = record::decode::<pool_quotas::PoolKindRecord>(&[], bytes);
    let _ = record::decode::<Vec<sheen_wire::changelog::Record>>(&[], bytes);
    let _ = acl::Acl::decode(bytes);
}
