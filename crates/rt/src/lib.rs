//! Clock, randomness, tasks, network and disk: real or simulated.
//!
//! Everything that Sheen asks of the outside world goes through an [`Rt`]. In production it is
//! tokio and the kernel; in a test it may be a [`sim::Sim`]: one thread, virtual time, a network
//! that delays and loses, disks that forget what was not synced, all from one seed. The code above
//! does not know which.
//!
//! * [`Rt`]: time, randomness, tasks, and the way to [`Disk`], [`Listener`], [`Stream`];
//! * [`buf`]: page-aligned buffers that are used again;
//! * [`proc`]: what must be known of other processes;
//! * [`sim`]: the simulated twin.
//!
//! `tokio::sync` works on both and is used everywhere. `tokio::select!` picks a branch at random by
//! a generator that no seed reaches: write `biased;` in it, or a simulation will not replay.

#![allow(
    clippy::disallowed_methods,
    reason = "this crate is the boundary behind which clock, threads, files and sockets lie"
)]

pub mod buf;
mod disk;
mod net;
pub mod proc;
mod real;
mod rt;
pub mod sim;
mod slab;
mod task;
mod time;

pub use disk::{DirEntry, DirEntryKind, Disk, File, LockGuard, Metadata, OpenDir, OpenOptions};
pub use net::{Listener, ReadHalf, Stream, WriteHalf};
pub use real::{RealOptions, Runtime};
pub use rt::Rt;
pub use task::{JoinError, JoinHandle};
pub use time::{Elapsed, Instant};
