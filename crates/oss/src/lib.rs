//! The object service: OSTs, bulk reads and writes.
//!
//! An OST keeps its objects as plain sparse files in a directory of any local file system:
//!
//! ```text
//! DIR/target          which target this is (fsname, index, uuid, format)
//! DIR/lock            held while a process serves the directory
//! DIR/O/<seq>/d<n>/<oid>   objects
//! DIR/C/<seq>:<oid>        objects that nobody may use any more
//! ```
//!
//! * [`store`]: that directory, and one module for each thing that is done to objects in it;
//! * `locks`: the locks that clients cache under; `changes`: how these are revoked before something
//!   is changed, `waiting`: what changes keep in memory until they are; `reads`: how others are
//!   made to write what is read; `glimpses`: how they are asked for sizes; `closes`: what a file
//!   that is migrated leaves behind;
//! * `space`: what clients are promised of it;
//! * [`Ost`]: the service around it: registration with the MGS, requests, counters, parameters.
//!
//! Invariants:
//! * an object is created by its first write (or a truncate or fallocate that gives it a size);
//!   until then it reads as empty;
//! * after `Sync`, or a write with `sync`, is answered, bytes and name of the object survive a
//!   crash of the host;
//! * after `Destroy` is answered the objects are gone, also after a crash of the host;
//! * what a client was promised space for is never refused for want of it;
//! * what a client holds a lock on is not changed for others before it has given the lock up;
//! * requests on different objects run in parallel. One part of a write is as atomic against reads
//!   of the same object as the local file system's `pwrite` is, several parts are not atomic
//!   together; a request that fails may have been done in part;
//! * open files, buffers and bookkeeping are bounded, whatever clients ask.

mod beginning;
mod changes;
mod closes;
mod config;
mod error;
mod glimpses;
mod locks;
mod ost;
mod params;
mod reads;
mod service;
mod space;
pub mod store;
mod waiting;

pub use config::{DataConfig, OPEN_FILES_MAX, OstConfig};
pub use error::OssError;
pub use ost::Ost;
pub use sheen_objects::Sharing;
pub use store::Store;
