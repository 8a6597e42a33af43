//! A file system of many hosts in virtual time: the real client, lock and server code, on modelled
//! disks and links. It shows what a formula cannot, for example 48 nodes whose writes revoke each
//! other's locks.
//!
//! * [`Hardware`]: the modelled machines. [`Job`]: the accesses of all tasks.
//! * [`measure`] starts the servers, mounts the file system on each node, runs the job, and returns
//!   the virtual times and the counters of the locks.
//!
//! Only disks, links and the delay of messages take time. Computing takes none: neither the
//! handling of a request, nor a copy, nor the kernel's part of a mount. So rates are upper bounds
//! for hosts whose processors are the limit.
//!
//! Invariants:
//! * equal hardware, job and seed give equal results, on each machine;
//! * the result depends on nothing outside: no clock, file or socket is used.

mod cluster;
mod error;
mod hardware;
mod job;
mod measure;

pub use error::{Result, SimulationError};
pub use hardware::Hardware;
pub use job::{Job, Locks, Striping};
pub use measure::{Measured, measure};
pub use sheen_oss::DiskSpec;
