//! The object service: OSTs, bulk reads and writes.
//!
//! An OST stores each object as a plain sparse file in a directory of any local file system:
//!
//! ```text
//! DIR/target               identity of the target (fsname, index, uuid, format)
//! DIR/clients              the clients for which a restarted OST waits
//! DIR/config.json          permanent settings, for a start without the MGS; written by `cli`
//! DIR/lock                 locked while a process serves the directory
//! DIR/O/<seq>/d<n>/<oid>   objects
//! DIR/owners/<seq>         files and owners of objects, for quotas
//! DIR/C/<seq>:<oid>        markers of sealed objects, which no client may use any more
//! DIR/durable/<seq>        which objects were durable once, so that a lost one is noticed
//! DIR/copies/<number>      the copy of a lost object; deleted at each start
//! ```
//!
//! * [`store`]: that directory, and one module for each operation on its objects;
//! * `locks`: the extent locks under which clients cache data;
//! * `changes`: how conflicting locks are revoked before an object changes;
//! * `write_admission`: the bound on the bytes that writes hold in memory while they wait for
//!   locks;
//! * `reads`: how other clients are made to flush before the OST reads an object;
//! * `recovery`: how a restarted OST waits for the dirty data of its clients;
//! * `glimpses`: how writers are asked for sizes and times;
//! * `seal`: sealing the objects that a migrated file leaves behind;
//! * `dom_inline`: inline DoM data, for the data service of an MDT;
//! * `scrub`, `scrubber`: checksums of objects at rest; `repair`: repair of damaged blocks;
//! * `space`: the space granted to clients;
//! * `quota`, `quota_count`: limits of space, and the count of objects by owner; `quota_params`:
//!   their parameters;
//! * `disk`, `disk_model`, `disk_spec`: a modelled disk, for measurements;
//! * `survey`, `loads`: loads that the OST makes itself, for measurements;
//! * [`Ost`]: the service around all this. `start`: start, stop and registration with the MGS;
//!   `service`: requests; `counters`, `brw_stats`, `params`: counters and parameters.
//!
//! Invariants:
//! * an object is created by its first write (or a truncate or fallocate that gives it a size);
//!   until then it reads as empty;
//! * once the OST has answered `Sync`, or a write with `sync`, bytes and name of the object survive
//!   a crash of the host;
//! * once the OST has answered `Destroy`, the objects stay deleted, also after a crash of the host;
//! * a write within a client's grant is never refused with ENOSPC or EDQUOT;
//! * bytes under a client's lock do not change for another client before the first client has
//!   cancelled its lock;
//! * requests on different objects run in parallel. One part of a write is as atomic against reads
//!   of the same object as the local file system's `pwrite` is. Several parts are not atomic
//!   together. A request that fails may have been done in part;
//! * open files, buffers and bookkeeping are bounded, whatever clients request.

mod authority;
mod brw_stats;
mod capabilities;
mod changes;
mod commit;
mod commits;
mod config;
mod counters;
mod disk;
mod disk_model;
mod disk_spec;
mod dom_inline;
mod error;
mod exports;
mod glimpses;
mod loads;
mod locks;
mod offline;
mod ost;
mod params;
mod quota;
mod quota_count;
mod quota_params;
mod quota_state;
mod reads;
mod recovery;
mod repair;
mod replayed;
mod scrub;
mod scrubber;
mod seal;
mod service;
mod space;
mod start;
pub mod store;
mod survey;
mod write_admission;

pub use config::{DataConfig, OPEN_FILES_MAX, OstConfig};
pub use disk_spec::DiskSpec;
pub use error::OssError;
pub use offline::OfflineOst;
pub use ost::Ost;
pub use sheen_objects::Sharing;
pub use store::Store;
